package dispatcher

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/dispatcher/endpoints"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// sharedConfig is of the one API server; each test has a namespace of its own.
var sharedConfig *rest.Config

func TestMain(m *testing.M) {
	kubetest.Main(m, func(c *kubetest.Cluster) error {
		sharedConfig = c.Environment.Config
		return nil
	})
}

// cluster is a namespace of the real API server.
type cluster struct {
	client.Client

	namespace string
}

func newCluster(t *testing.T) cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, eventsv1.AddToScheme, corev1.AddToScheme} {
		must(t, add(scheme))
	}
	kube, err := client.New(sharedConfig, client.Options{Scheme: scheme})
	must(t, err)
	return cluster{kube, kubetest.Namespace(t, sharedConfig, "webhooks-")}
}

// second is the error of a call with a result.
func second[T any](_ T, err error) error { return err }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// merchant creates a Merchant with a webhook.
func (c cluster) merchant(t *testing.T, name, url string) *v1alpha1.Merchant {
	t.Helper()
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Spec:       v1alpha1.MerchantSpec{DisplayName: "Acme Coffee", Webhook: &v1alpha1.Webhook{URL: url}},
	}
	must(t, c.Create(t.Context(), merchant))
	return merchant
}

// publish writes what the operator publishes of a Merchant; the credentials namespace is the Merchant's own here.
func (c cluster) publish(t *testing.T, merchant *v1alpha1.Merchant) {
	t.Helper()
	record := published.NewMerchantRecord(merchant)
	configMap, err := published.EncodeMerchant(c.namespace, record)
	must(t, err)
	must(t, c.Create(t.Context(), configMap))
	secret, err := published.EncodeWebhook(c.namespace, published.WebhookRecord{
		MerchantID: record.MerchantID,
		Source:     published.Source{Namespace: merchant.Namespace, Name: merchant.Name, UID: merchant.UID},
		Current:    published.IssuedSecret{Secret: signingSecret, CreatedAt: time.Now()},
	})
	must(t, err)
	must(t, c.Create(t.Context(), secret))
}

func endpointOf(merchant *v1alpha1.Merchant) endpoints.Endpoint {
	return endpoints.Endpoint{
		MerchantID: published.ID(merchant.UID),
		Merchant:   types.NamespacedName{Namespace: merchant.Namespace, Name: merchant.Name},
		UID:        merchant.UID,
		URL:        "https://shop.example",
	}
}

// conditions returns those of a Merchant now, by type.
func (c cluster) conditions(t *testing.T, merchant *v1alpha1.Merchant) map[string]metav1.Condition {
	t.Helper()
	var now v1alpha1.Merchant
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(merchant), &now))
	conditions := map[string]metav1.Condition{}
	for _, condition := range now.Status.Conditions {
		conditions[condition.Type] = condition
	}
	return conditions
}

func (c cluster) events(t *testing.T) []eventsv1.Event {
	t.Helper()
	var list eventsv1.EventList
	must(t, c.List(t.Context(), &list, client.InNamespace(c.namespace)))
	return list.Items
}
