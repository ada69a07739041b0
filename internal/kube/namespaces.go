package kube

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// CheckNamespace checks the name of a namespace, given by a flag.
func CheckNamespace(flag, name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("%s must be the name of a namespace (lower-case letters, digits and -), not %q", flag, name)
	}
	return nil
}

// CheckNamespaces checks the names of namespaces, given by a flag.
func CheckNamespaces(flag string, names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, CheckNamespace(flag, name))
	}
	return errors.Join(errs...)
}

// WatchedNamespaces configures a cache for these namespaces only; none: all.
func WatchedNamespaces(names []string) map[string]cache.Config {
	if len(names) == 0 {
		return nil
	}
	watched := map[string]cache.Config{}
	for _, name := range names {
		watched[name] = cache.Config{}
	}
	return watched
}
