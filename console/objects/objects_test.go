package objects

import (
	"context"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
