package controllers

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/freeport"
)

func TestRun_InvalidOptions(t *testing.T) {
	for desc, test := range map[string]struct {
		edit func(*Options)
		want string
	}{
		"no credentials namespace": {func(o *Options) { o.CredentialsNamespace = "" }, "--credentials-namespace must be"},
		"no ops address":           {func(o *Options) { o.Ops.Address = "" }, "--ops-address must be"},
		"no clock":                 {func(o *Options) { o.Clock = nil }, "start from DefaultOptions"},
		"no log":                   {func(o *Options) { o.Log = nil }, "start from DefaultOptions"},
	} {
		t.Run(desc, func(t *testing.T) {
			options := DefaultOptions()
			test.edit(&options)
			if err := Run(t.Context(), options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Run: %v, want %s", err, test.want)
			}
		})
	}
}

func TestRun_NoKubeconfig(t *testing.T) {
	options := DefaultOptions()
	options.Kubeconfig = t.TempDir() + "/missing"
	if err := Run(t.Context(), options); err == nil || !strings.Contains(err.Error(), "load the kubeconfig") {
		t.Errorf("Run: %v", err)
	}
}

var _ = Describe("The operator", func() {
	It("serves health, readiness and metrics on one port", func() {
		f := newFixture()
		f.stop()
		address := freeAddress()
		f.startOperator(func(o *Options) { o.Ops.Address = address })
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			Eventually(func(g Gomega) { g.Expect(get(g, address, path)).NotTo(BeEmpty()) }).Should(Succeed())
		}
		f.merchant(aMerchant("coffee"))
		f.key(aKey("till", "coffee"))
		Expect(get(Default, address, "/metrics")).To(ContainSubstring(`merchant_operator_key_rotations_total{cause="Initial"}`))
	})

	It("waits, ready, while another one leads, and takes over when that one stops", func() {
		f := newFixture()
		f.stop()
		elect := func(o *Options) { o.LeaderElect = true }
		f.startOperator(elect)
		f.merchant(aMerchant("coffee"))
		stopLeader := f.stop

		address := freeAddress()
		f.startOperator(elect, func(o *Options) { o.Ops.Address = address })
		Eventually(func(g Gomega) { g.Expect(get(g, address, "/readyz")).To(Equal("ok")) }).Should(Succeed())
		stopLeader()
		key := f.key(aKey("till", "coffee"))
		Expect(f.live(f.record(key), f.delivered("till-key"))).To(BeTrue())
	})

	It("leads although one for another credentials namespace leads, too", func() {
		elect := func(o *Options) { o.LeaderElect = true }
		holders := map[string]bool{}
		for range 2 {
			f := newFixture()
			f.stop()
			f.startOperator(elect)
			f.merchant(aMerchant("coffee"))
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.credentials, Name: leaseName}}
			f.read(lease)
			holders[*lease.Spec.HolderIdentity] = true
		}
		Expect(holders).To(HaveLen(2))
	})

	It("leaves namespaces alone that are not its own", func() {
		f := newFixture()
		elsewhere := aMerchant("coffee").Merchant
		home := f.namespace
		f.namespace = f.newNamespace("elsewhere-")
		f.apply(elsewhere)
		f.namespace = home
		f.merchant(aMerchant("books"))
		f.read(elsewhere)
		Expect(elsewhere.Finalizers).To(BeEmpty())
		Expect(elsewhere.Status.Conditions).To(BeEmpty())
	})

	It("watches all namespaces when none is given", func() {
		f := newFixture()
		f.stop()
		f.startOperator(func(o *Options) { o.WatchNamespaces = nil })
		f.merchant(aMerchant("coffee"))
		key := f.key(aKey("till", "coffee"))
		change(f, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		f.awaitGeneration(key, 2)
	})
})

func freeAddress() string {
	GinkgoHelper()
	port, err := freeport.Choose()
	Expect(err).NotTo(HaveOccurred())
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func get(g Gomega, address, path string) string {
	GinkgoHelper()
	response, err := http.Get("http://" + address + path)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	g.Expect(response.StatusCode).To(Equal(http.StatusOK), path)
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return string(body)
}
