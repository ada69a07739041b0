// Package operator is `bench operator`: it times the operator making many ApiKeys ready on a real kube-apiserver, beside a floor that
// only does the same writes with client-go, and counts the requests to the API server.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// limit is for the whole run on a busy machine. An idle one takes a few minutes.
const limit = 40 * time.Minute

// Command is `bench operator`.
func Command() *cobra.Command {
	var options fixture.Options
	var merchants, keys int
	command := &cobra.Command{
		Use:   "operator",
		Short: "Time the operator making 10,000 ApiKeys ready",
		Long: "Times the operator making Merchants and ApiKeys ready, beside a floor that does the same writes with client-go. Then restarts\n" +
			"the operator, which has nothing left to write. docs/performance/operator.md says what is measured and why.",
		PreRunE: fixture.AtLeast("keys", 2),
		RunE: options.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) {
			ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the machine is too slow for so many; set --keys lower"))
			defer cancel()
			(&bench{Fixture: f, merchants: merchants, keys: keys}).run(ctx, out)
		}),
	}
	options.AddFlags(command.Flags(), "bin/bench-operator.json")
	command.Flags().IntVar(&merchants, "merchants", 100, "number of Merchants")
	command.Flags().IntVar(&keys, "keys", 10_000, "number of ApiKeys, distributed over the Merchants")
	return command
}

// bench is everything that runs.
type bench struct {
	*fixture.Fixture

	merchants, keys int
	// plain speaks JSON, as the operator does for events; custom is for the custom resources.
	plain  *kubernetes.Clientset
	custom *rest.RESTClient
}

// run measures the operator between the two halves of the floor, so that a machine or a database that becomes slower affects both.
// Then it restarts the operator, which has nothing left to write.
func (b *bench) run(ctx context.Context, out io.Writer) {
	b.connect()
	b.Progress("creating %d Merchants and %d ApiKeys for the operator, and as many for the floor", b.merchants, b.keys)
	b.create(ctx, operatorSide)
	f := &floor{bench: b, objects: b.create(ctx, floorSide), failed: make(chan error, 1)}
	r := &results{Merchants: b.merchants, Keys: b.keys}
	b.Progress("the floor, first half")
	first := b.measureFloor(ctx, f, 0, b.keys/2)
	b.Progress("the operator")
	r.Operator = b.measureOperator(ctx, rarely, func(at state, part float64) bool {
		return at.readyKeys >= part*float64(b.keys) && at.readyMerchants >= part*float64(b.merchants)
	})
	b.Progress("the floor, second half")
	r.Floor = []measured{first, b.measureFloor(ctx, f, b.keys/2, b.keys)}
	b.Progress("the operator again, with nothing to do")
	r.Restart = b.measureOperator(ctx, often, func(at state, part float64) bool {
		return at.keyPasses >= part*float64(b.keys) && (part < 1 || at.queued == 0)
	})
	b.check(ctx)
	r.Machine = report.DescribeMachine()
	r.print(out)
	fixture.Check(report.Save(b.Output, r))
}

// connect makes clients without rate limits: the operator has none either.
func (b *bench) connect() {
	b.plain = fixture.Must(kubernetes.NewForConfig(b.Config))
	scheme := runtime.NewScheme()
	fixture.Check(v1alpha1.AddToScheme(scheme))
	custom := rest.CopyConfig(b.Config)
	custom.GroupVersion, custom.APIPath = &v1alpha1.SchemeGroupVersion, "/apis"
	custom.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	b.custom = fixture.Must(rest.RESTClientFor(custom))
}

// side is the operator or the floor. Each has namespaces of its own, with equal objects.
type side string

const (
	operatorSide side = "operator"
	floorSide    side = "floor"
)

func (s side) tenant() string      { return "shops-" + string(s) }
func (s side) credentials() string { return "credentials-" + string(s) }

// The resources of the API group.
const (
	merchantsResource = "merchants"
	keysResource      = "apikeys"
)

// objects are those of a side, as the API server returned them on creation. Keys are of each merchant in turn.
type objects struct {
	side
	merchants []*v1alpha1.Merchant
	keys      []*v1alpha1.ApiKey
}

func (o objects) merchantOf(i int) *v1alpha1.Merchant { return o.merchants[i%len(o.merchants)] }

func (b *bench) create(ctx context.Context, s side) objects {
	const creators = 16 // this is not measured
	o := objects{s, make([]*v1alpha1.Merchant, b.merchants), make([]*v1alpha1.ApiKey, b.keys)}
	b.CreateNamespace(ctx, s.tenant())
	b.CreateNamespace(ctx, s.credentials())
	post := func(ctx context.Context, resource string, object, created runtime.Object) error {
		return b.custom.Post().Namespace(s.tenant()).Resource(resource).Body(object).Do(ctx).Into(created)
	}
	version := v1alpha1.SchemeGroupVersion.String()
	fixture.Check(fixture.Each(ctx, creators, b.merchants, func(ctx context.Context, i int) error {
		o.merchants[i] = &v1alpha1.Merchant{}
		return post(ctx, merchantsResource, &v1alpha1.Merchant{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "Merchant"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("merchant-%d", i)},
			Spec: v1alpha1.MerchantSpec{
				DisplayName: fmt.Sprintf("Merchant %d", i), IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48"},
			},
		}, o.merchants[i])
	}))
	fixture.Check(fixture.Each(ctx, creators, b.keys, func(ctx context.Context, i int) error {
		o.keys[i] = &v1alpha1.ApiKey{}
		return post(ctx, keysResource, &v1alpha1.ApiKey{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "ApiKey"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("till-%d", i)},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: o.merchantOf(i).Name}},
		}, o.keys[i])
	}))
	return o
}

// check counts the results of both sides: a side that did less would seem faster.
func (b *bench) check(ctx context.Context) {
	for _, s := range []side{operatorSide, floorSide} {
		var keys v1alpha1.ApiKeyList
		fixture.Check(b.custom.Get().Namespace(s.tenant()).Resource(keysResource).Do(ctx).Into(&keys))
		ready := 0
		for _, key := range keys.Items {
			if meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.ReadyCondition) {
				ready++
			}
		}
		delivered := fixture.Must(b.Kube.CoreV1().Secrets(s.tenant()).List(ctx, metav1.ListOptions{}))
		issued := fixture.Must(b.Kube.CoreV1().Secrets(s.credentials()).List(ctx, metav1.ListOptions{
			LabelSelector: published.Label + "=" + published.LabelKey,
		}))
		if ready != b.keys || len(delivered.Items) != b.keys || len(issued.Items) != b.keys {
			fixture.Check(fmt.Errorf("of %d ApiKeys the %s made %d ready, delivered %d and published %d",
				b.keys, s, ready, len(delivered.Items), len(issued.Items)))
		}
	}
}
