package directory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func TestNewPermissions(t *testing.T) {
	for name, test := range map[string]struct {
		words, want []v1alpha1.Permission
	}{
		"nil":                 {nil, v1alpha1.ImpliedPermissions()},
		"none":                {[]v1alpha1.Permission{}, []v1alpha1.Permission{}},
		"some":                {[]v1alpha1.Permission{"cancel", "create"}, []v1alpha1.Permission{"create", "cancel"}},
		"twice":               {[]v1alpha1.Permission{"read", "read"}, []v1alpha1.Permission{"read"}},
		"all":                 {v1alpha1.Permissions(), v1alpha1.Permissions()},
		"words of no version": {[]v1alpha1.Permission{"", "*", "all", "Read", "read ", "payout"}, []v1alpha1.Permission{}},
		"one of a later one":  {[]v1alpha1.Permission{"payout", "list"}, []v1alpha1.Permission{"list"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPermissions(test.words)
			if diff := cmp.Diff(test.want, p.List()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, word := range []v1alpha1.Permission{"", "*", "payout"} {
				if p.Has(word) {
					t.Errorf("it has %q", word)
				}
			}
		})
	}
	if (Permissions(0)).Has(v1alpha1.PermissionRead) {
		t.Error("the zero value permits something")
	}
}
