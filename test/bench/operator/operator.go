// Package operator is `bench operator`: it times the operator making many ApiKeys ready on a real kube-apiserver, beside a floor that
// writes the same with raw client-go and does nothing else, and counts what the operator asks of the API server.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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

// limit is for all of it, on a machine that does other things too. A quiet one takes a few minutes.
const limit = 40 * time.Minute

var errTooSlow = errors.New("the machine is too slow for so many; set --keys lower")

type settings struct {
	fixture.Options

	merchants, keys int
}

// Command is `bench operator`.
func Command() *cobra.Command {
	var s settings
	command := &cobra.Command{
		Use:   "operator",
		Short: "Time the operator making 10,000 ApiKeys ready",
		Long: "Times the operator making Merchants and ApiKeys ready, beside a floor that writes the same with client-go. Then restarts the\n" +
			"operator, which has nothing to write any more. docs/performance/operator.md says what is measured and why.",
		PreRunE: fixture.AtLeast("keys", 2),
		RunE: s.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) {
			ctx, cancel := context.WithTimeoutCause(ctx, limit, errTooSlow)
			defer cancel()
			(&bench{Fixture: f, settings: s}).run(ctx, out)
		}),
	}
	s.AddFlags(command.Flags(), "bin/bench-operator.json")
	command.Flags().IntVar(&s.merchants, "merchants", 100, "number of Merchants")
	command.Flags().IntVar(&s.keys, "keys", 10_000, "number of ApiKeys, shared out among the Merchants")
	return command
}

// bench is what runs while it is measured.
type bench struct {
	*fixture.Fixture

	settings settings
	// plain speaks JSON, as the operator's recorder does of events; custom is for the custom resources.
	plain  *kubernetes.Clientset
	custom *rest.RESTClient
}

// run measures the operator between the two halves of the floor, so that a machine or a database that becomes slower does so to
// both. Then it restarts the operator, which has nothing to write any more.
func (b *bench) run(ctx context.Context, out io.Writer) {
	b.connect()
	merchants, keys := b.settings.merchants, b.settings.keys
	b.Progress("creating %d Merchants and %d ApiKeys for the operator, and as many for the floor", merchants, keys)
	b.create(ctx, operatorContestant)
	f := &floor{bench: b, objects: b.create(ctx, floorContestant), failed: make(chan error, 1)}
	r := &results{Merchants: merchants, Keys: keys, Ratios: report.Ratios{}}
	b.Progress("the floor, first half")
	first := f.measure(ctx, 0, keys/2)
	b.Progress("the operator")
	r.Operator = b.measureOperator(ctx, rarely, func(at state, part float64) bool {
		return at.readyKeys >= part*float64(keys) && at.readyMerchants >= part*float64(merchants)
	})
	b.Progress("the floor, second half")
	r.Floor = []measured{first, f.measure(ctx, keys/2, keys)}
	b.Progress("the operator once more, with nothing to do")
	r.Restart = b.measureOperator(ctx, often, func(at state, part float64) bool {
		return at.keyPasses >= part*float64(keys) && (part < 1 || at.queued == 0)
	})
	b.check(ctx)
	r.Machine = report.DescribeMachine()
	r.print(out)
	fixture.Check(report.Save(b.Output, r))
}

// connect makes clients without limits of their own: the operator has none either.
func (b *bench) connect() {
	b.plain = fixture.Must(kubernetes.NewForConfig(b.Config))
	scheme := runtime.NewScheme()
	fixture.Check(v1alpha1.AddToScheme(scheme))
	custom := rest.CopyConfig(b.Config)
	custom.GroupVersion, custom.APIPath = &v1alpha1.SchemeGroupVersion, "/apis"
	custom.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	b.custom = fixture.Must(rest.RESTClientFor(custom))
}

// contestant works in namespaces of its own, on objects that are alike.
type contestant string

const (
	operatorContestant contestant = "operator"
	floorContestant    contestant = "floor"
)

func (c contestant) tenant() string      { return "shops-" + string(c) }
func (c contestant) credentials() string { return "credentials-" + string(c) }

// The resources of the API group.
const (
	merchantsResource = "merchants"
	keysResource      = "apikeys"
)

// objects are those of a contestant, as the API server answered to their creation. The i-th key is of the merchant with the rest
// of a division.
type objects struct {
	contestant
	merchants []*v1alpha1.Merchant
	keys      []*v1alpha1.ApiKey
}

func (o objects) merchantOf(i int) *v1alpha1.Merchant { return o.merchants[i%len(o.merchants)] }

func (b *bench) create(ctx context.Context, c contestant) objects {
	const creators = 16 // before the clock starts
	o := objects{c, make([]*v1alpha1.Merchant, b.settings.merchants), make([]*v1alpha1.ApiKey, b.settings.keys)}
	b.CreateNamespace(ctx, c.tenant())
	b.CreateNamespace(ctx, c.credentials())
	post := func(ctx context.Context, resource string, object, created runtime.Object) error {
		return b.custom.Post().Namespace(c.tenant()).Resource(resource).Body(object).Do(ctx).Into(created)
	}
	version := v1alpha1.SchemeGroupVersion.String()
	fixture.Check(fixture.Each(ctx, creators, len(o.merchants), func(ctx context.Context, i int) error {
		o.merchants[i] = &v1alpha1.Merchant{}
		return post(ctx, merchantsResource, &v1alpha1.Merchant{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "Merchant"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("merchant-%d", i)},
			Spec: v1alpha1.MerchantSpec{
				DisplayName: fmt.Sprintf("Merchant %d", i), IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48"},
			},
		}, o.merchants[i])
	}))
	fixture.Check(fixture.Each(ctx, creators, len(o.keys), func(ctx context.Context, i int) error {
		o.keys[i] = &v1alpha1.ApiKey{}
		return post(ctx, keysResource, &v1alpha1.ApiKey{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "ApiKey"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("till-%d", i)},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: o.merchantOf(i).Name}},
		}, o.keys[i])
	}))
	return o
}

// measure runs the floor over a part of its objects.
func (f *floor) measure(ctx context.Context, from, to int) (m measured) {
	served := f.served(ctx)
	cpu := fixture.CPU(os.Getpid())
	m.Took = f.run(ctx, from, to)
	m.CPU = fixture.CPU(os.Getpid()) - cpu
	f.Progress("    %d ApiKeys in %s", to-from, m.Took.Round(time.Millisecond))
	return m.with(f.served(ctx).since(served))
}

// check asks the API server whether both contestants have done their work: whoever did less was faster for it.
func (b *bench) check(ctx context.Context) {
	for _, c := range []contestant{operatorContestant, floorContestant} {
		var keys v1alpha1.ApiKeyList
		fixture.Check(b.custom.Get().Namespace(c.tenant()).Resource(keysResource).Do(ctx).Into(&keys))
		ready := 0
		for _, key := range keys.Items {
			if meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.ReadyCondition) {
				ready++
			}
		}
		delivered := fixture.Must(b.Kube.CoreV1().Secrets(c.tenant()).List(ctx, metav1.ListOptions{}))
		issued := fixture.Must(b.Kube.CoreV1().Secrets(c.credentials()).List(ctx, metav1.ListOptions{
			LabelSelector: published.Label + "=" + published.LabelKey,
		}))
		if want := b.settings.keys; ready != want || len(delivered.Items) != want || len(issued.Items) != want {
			fixture.Check(fmt.Errorf("of %d ApiKeys the %s made %d ready, delivered %d and published %d",
				want, c, ready, len(delivered.Items), len(issued.Items)))
		}
	}
}
