package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What the API server did not check is a sentence, and no field <nil>.
func TestPrintError_Invalid(t *testing.T) {
	kind := schema.GroupKind{Group: "merchant-operator.io", Kind: "ApiKey"}
	wrong := field.NotSupported(field.NewPath("spec", "state"), "Stopped", []string{"Active", "Disabled"})
	unchecked := field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a wrong value": {apierrors.NewInvalid(kind, "till", field.ErrorList{wrong}), `error: ApiKey till is invalid: spec.state: Unsupported value: "Stopped": supported values: "Active", "Disabled"`},
		"a wrong value, and rules that were not checked": {
			fmt.Errorf("create it: %w", apierrors.NewInvalid(kind, "till", field.ErrorList{wrong, unchecked})),
			`error: create it: ApiKey till is invalid: spec.state: Unsupported value: "Stopped": supported values: "Active", "Disabled". Other rules are checked when this is right`,
		},
		"another error": {errors.New("it is away"), "error: it is away"},
	} {
		t.Run(name, func(t *testing.T) {
			var printed strings.Builder
			printError(&printed, test.err)
			if got := strings.TrimSpace(printed.String()); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
