package objects

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"golang.org/x/text/language"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/web"
)

// slowAPI answers at once about all namespaces but one.
type slowAPI struct {
	client.Client

	slow string
}

// Get returns an ApiKey of acme.
func (a slowAPI) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if key.Namespace == a.slow {
		<-ctx.Done()
		return ctx.Err()
	}
	if key, ok := into.(*v1alpha1.ApiKey); ok {
		key.Spec.MerchantRef.Name = "acme"
	}
	return nil
}

// A tenant whose pages read many ApiKeys is not in the way of another tenant's form.
func TestReadKey_ManyOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := &Client{Client: slowAPI{slow: "crowd"}, keyReads: web.NewInflight(maxKeyReads, maxKeyReads, errTooManyKeyReads)}
		acme := func(namespace string) *v1alpha1.Merchant {
			return &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "acme"}}
		}
		for range 4 * maxKeyReads {
			go func() { _, _ = reads.ReadKey(t.Context(), acme("crowd"), "till") }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), Timeout/2)
		defer cancel()
		if _, err := reads.ReadKey(ctx, acme("victim"), "till"); err != nil {
			t.Error(err)
		}
	})
}

// A rule of the platform is said in its author's words, without the names of policies; another invalid object by its fields.
func TestRefusedReason(t *testing.T) {
	words, err := web.LoadWords(language.English)
	if err != nil {
		t.Fatal(err)
	}
	group, cause := schema.GroupKind{Group: "merchant-operator.io", Kind: "ApiKey"}, "spec.expiresAt: a live key needs an end"
	denied := "ValidatingAdmissionPolicy 'live-keys' with binding 'live-keys' denied request: " + cause
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"policy":           {apierrors.NewInvalid(group, "till", field.ErrorList{field.Invalid(nil, nil, denied)}), "A rule of your platform refuses this: " + cause},
		"policy, 403":      {apierrors.NewForbidden(schema.GroupResource{Resource: "apikeys"}, "till", errors.New(denied)), "A rule of your platform refuses this: " + cause},
		"webhook":          {apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(`admission webhook "keys.example" denied the request: no keys on Sundays`)), "A rule of your platform refuses this: no keys on Sundays"},
		"field":            {apierrors.NewInvalid(group, "till", field.ErrorList{field.Required(field.NewPath("spec", "mode"), "")}), "spec.mode: Required value"},
		"without a field":  {apierrors.NewInvalid(group, "till", field.ErrorList{field.Required(nil, "say more")}), "The service refuses this."},
		"another failure":  {apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no right")), ""},
		"no answer at all": {errors.New("refused"), ""},
	} {
		got, refused := RefusedReason(words, test.err)
		if got != test.want || refused != (test.want != "") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if as := Error("create", test.err); errors.Is(as, ErrUnavailable) != (test.want == "" || name == "field" || name == "without a field") {
			t.Errorf("%s: the error is %v", name, as)
		}
	}
}
