package controllers

import (
	"strings"
	"testing"
)

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for desc, edit := range map[string]func(*Options){
		"no credentials namespace": func(o *Options) { o.CredentialsNamespace = "" },
		"no ops address":           func(o *Options) { o.OpsAddress = "" },
		"no clock":                 func(o *Options) { o.Clock = nil },
		"no log":                   func(o *Options) { o.Log = nil },
	} {
		t.Run(desc, func(t *testing.T) {
			options := DefaultOptions()
			edit(&options)
			if err := Run(t.Context(), options); err == nil || !strings.Contains(err.Error(), "start the operator") {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

func TestAKubeconfigThatIsNotThereIsSaidSo(t *testing.T) {
	options := DefaultOptions()
	options.Kubeconfig = t.TempDir() + "/missing"
	if err := Run(t.Context(), options); err == nil || !strings.Contains(err.Error(), "find the Kubernetes API") {
		t.Errorf("Run: %v", err)
	}
}
