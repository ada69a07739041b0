package chart

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestTheCRDsAreThoseOfTheTypesAndAreKept(t *testing.T) {
	all := objects(t, render(t, "").stream())
	for _, plural := range []string{"merchants", "apikeys"} {
		text, err := os.ReadFile(inRepository("config", "crd", "bases", "merchant-operator.io_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := yaml.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		got := one(t, all, "CustomResourceDefinition/"+plural+".merchant-operator.io")
		if diff := cmp.Diff(want["spec"], got.Object["spec"]); diff != "" {
			t.Errorf("%s is not that of config/crd; run `make chart-docs` (-want +got):\n%s", plural, diff)
		}
		if got.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s, and with it every object, is gone after helm uninstall", plural)
		}
	}
	if one(t, all, "Namespace/"+credentials).GetAnnotations()["helm.sh/resource-policy"] != "keep" {
		t.Error("the credentials namespace, and with it every key, is gone after helm uninstall")
	}
}
