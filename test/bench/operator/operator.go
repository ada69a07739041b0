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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

// Command is `bench operator`.
func Command() *cobra.Command {
	var options fixture.Options
	b := &bench{}
	command := &cobra.Command{
		Use:   "operator",
		Short: "Time the operator making 10,000 ApiKeys ready",
		Long: "Times the operator making Merchants and ApiKeys ready, beside a floor that does the same writes with client-go. Then restarts\n" +
			"the operator, which has nothing left to write.",
		PreRunE: fixture.AtLeast("keys", 2),
		RunE: options.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) {
			limit := 30*time.Minute + time.Duration(b.keys)*50*time.Millisecond // an idle machine takes a quarter of it
			ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the machine is too slow for so many; set --keys lower"))
			defer cancel()
			b.Fixture = f
			b.run(ctx, out)
		}),
	}
	options.AddFlags(command.Flags(), "bin/bench-operator.json")
	command.Flags().IntVar(&b.merchants, "merchants", 100, "number of Merchants")
	command.Flags().IntVar(&b.keys, "keys", 10_000, "number of ApiKeys, distributed over the Merchants")
	command.Flags().IntVar(&b.floorKeys, "floor-keys", 10_000, "maximum number of ApiKeys for the floor")
	command.Flags().BoolVar(&b.leaderChange, "leader-change", false, "kill the leader of two operators when half of the ApiKeys are ready")
	return command
}

// bench is everything that runs.
type bench struct {
	*fixture.Fixture

	merchants, keys, floorKeys int
	leaderChange               bool
	// plain speaks JSON, as the operator does for events; custom is for the custom resources.
	plain  *kubernetes.Clientset
	custom *rest.RESTClient
}

// run measures the operator between the two halves of the floor, so that a machine or a database that becomes slower affects both.
// Then it restarts the operator, which has nothing left to write.
func (b *bench) run(ctx context.Context, out io.Writer) {
	b.connect()
	b.floorKeys = min(b.floorKeys, b.keys)
	for _, s := range []side{operatorSide, floorSide} {
		b.CreateNamespace(ctx, s.tenant())
		b.CreateNamespace(ctx, s.credentials())
	}
	r := &results{Merchants: b.merchants, Keys: b.keys, FloorKeys: b.floorKeys}
	b.Progress("the operator, without objects")
	r.Empty = b.measureOperator(ctx, often, func(state) float64 { return 1 })
	b.Progress("creating %d Merchants and %d ApiKeys for the operator, and %d for the floor", b.merchants, b.keys, b.floorKeys)
	b.create(ctx, operatorSide, b.keys)
	f := &floor{bench: b, objects: b.create(ctx, floorSide, b.floorKeys), failed: make(chan error, 1)}
	b.Progress("the floor, first half")
	first := b.measureFloor(ctx, f, 0, b.floorKeys/2)
	b.Progress("the operator")
	if b.leaderChange {
		r.Operator = b.measureLeaderChange(ctx)
	} else {
		r.Operator = b.measureOperator(ctx, rarely, b.ready)
	}
	b.Progress("the floor, second half")
	r.Floor = []measured{first, b.measureFloor(ctx, f, b.floorKeys/2, b.floorKeys)}
	b.Progress("the operator again, with nothing to do")
	r.Restart = b.measureOperator(ctx, often, b.passed)
	b.Progress("comparing each ApiKey with its Secrets")
	b.check(ctx, operatorSide, b.keys)
	b.check(ctx, floorSide, b.floorKeys)
	r.Machine = report.DescribeMachine()
	r.print(out)
	fixture.Check(report.Save(b.Output, r))
}

// ready is the part of the objects that is ready.
func (b *bench) ready(at state) float64 {
	return min(at.readyKeys/float64(b.keys), at.readyMerchants/float64(b.merchants))
}

// passed is the part of the ApiKeys that was reconciled; all, if also nothing is queued.
func (b *bench) passed(at state) float64 {
	part := at.keyPasses / float64(b.keys)
	if at.queued > 0 {
		return min(part, 0.99)
	}
	return part
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

func (o objects) merchantAt(i int) *v1alpha1.Merchant { return o.merchants[i%len(o.merchants)] }

func (b *bench) create(ctx context.Context, s side, keys int) objects {
	const creators = 16 // this is not measured
	merchants := max(1, b.merchants*keys/b.keys)
	o := objects{s, make([]*v1alpha1.Merchant, merchants), make([]*v1alpha1.ApiKey, keys)}
	post := func(ctx context.Context, resource string, object, created runtime.Object) error {
		return b.custom.Post().Namespace(s.tenant()).Resource(resource).Body(object).Do(ctx).Into(created)
	}
	version := v1alpha1.SchemeGroupVersion.String()
	fixture.Check(fixture.Each(ctx, creators, merchants, func(ctx context.Context, i int) error {
		o.merchants[i] = &v1alpha1.Merchant{}
		return post(ctx, merchantsResource, &v1alpha1.Merchant{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "Merchant"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("merchant-%d", i)},
			Spec: v1alpha1.MerchantSpec{
				DisplayName: fmt.Sprintf("Merchant %d", i), IPAllowlist: []v1alpha1.IPBlock{"203.0.113.0/24", "2001:db8::/48"},
			},
		}, o.merchants[i])
	}))
	fixture.Check(fixture.Each(ctx, creators, keys, func(ctx context.Context, i int) error {
		if i%10_000 == 0 && i > 0 {
			b.Progress("    %d of %d ApiKeys", i, keys)
		}
		o.keys[i] = &v1alpha1.ApiKey{}
		return post(ctx, keysResource, &v1alpha1.ApiKey{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "ApiKey"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("till-%d", i)},
			Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: o.merchantAt(i).Name}},
		}, o.keys[i])
	}))
	return o
}
