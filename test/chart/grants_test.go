package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// grants are the rights that manifests give to the programs' accounts, one line for each account, place and
// resource, in order. What rails get is their own.
func grants(t *testing.T, text string) []string {
	t.Helper()
	all := objects(t, text)
	verbs := map[string]map[string]bool{}
	for key := range all {
		var granted []rbacv1.PolicyRule
		var subjects []rbacv1.Subject
		place := "everywhere"
		switch {
		case strings.HasPrefix(key, "RoleBinding/"):
			binding := get[rbacv1.RoleBinding](t, all, key)
			place = "in " + binding.Namespace
			granted, subjects = rulesOf(t, all, binding.RoleRef, binding.Namespace), binding.Subjects
		case strings.HasPrefix(key, "ClusterRoleBinding/"):
			binding := get[rbacv1.ClusterRoleBinding](t, all, key)
			granted, subjects = rulesOf(t, all, binding.RoleRef, ""), binding.Subjects
		}
		for _, subject := range subjects {
			if subject.Namespace != system || subject.Kind != rbacv1.ServiceAccountKind {
				t.Errorf("%s is for %v", key, subject)
			}
			note(verbs, subject.Name+" "+place, granted)
		}
	}
	var out []string
	for what, each := range verbs {
		account, resource, _ := strings.Cut(what, ": ")
		out = append(out, account+": "+strings.Join(slices.Sorted(maps.Keys(each)), " ")+" "+resource)
	}
	slices.Sort(out)
	return out
}

func note(verbs map[string]map[string]bool, who string, granted []rbacv1.PolicyRule) {
	for _, rule := range granted {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				what := who + ": " + strings.TrimSuffix(resource+"."+group, ".")
				if verbs[what] == nil {
					verbs[what] = map[string]bool{}
				}
				for _, verb := range rule.Verbs {
					verbs[what][verb] = true
				}
			}
		}
	}
}

// rulesOf finds the rules of a role. One that Kubernetes itself has is shown by its name.
func rulesOf(t *testing.T, all map[string]*unstructured.Unstructured, role rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	t.Helper()
	var found []rbacv1.PolicyRule
	switch {
	case role.Kind == "ClusterRole" && strings.HasPrefix(role.Name, "system:"):
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{role.Name}, Verbs: []string{"all of"}}}
	case role.Kind == "ClusterRole":
		found = get[rbacv1.ClusterRole](t, all, "ClusterRole/"+role.Name).Rules
	case namespace == system:
		found = get[rbacv1.Role](t, all, "Role/"+role.Name).Rules
	default:
		found = get[rbacv1.Role](t, all, "Role/"+role.Name+"@"+namespace).Rules
	}
	for _, rule := range found {
		// Neither would be seen in the list.
		if len(rule.ResourceNames) > 0 || len(rule.NonResourceURLs) > 0 {
			t.Errorf("%s has a rule of a kind that is not compared: %v", role.Name, rule)
		}
	}
	return found
}

func lines(text string) []string {
	out := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(out)
	return out
}
