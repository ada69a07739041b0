package controllers

import (
	"io"
	"net"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

var _ = Describe("The operator", func() {
	It("serves health, readiness and metrics on one port", func() {
		w := newWorld()
		w.stop()
		address := freeAddress()
		w.startOperator(func(o *Options) { o.OpsAddress = address })
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			Eventually(func(g Gomega) { g.Expect(get(g, address, path)).NotTo(BeEmpty()) }).Should(Succeed())
		}
		w.merchant(aMerchant("coffee"))
		w.key(aKey("till", "coffee"))
		Expect(get(Default, address, "/metrics")).To(ContainSubstring(`merchant_operator_key_rotations_total{cause="Initial"}`))
	})

	It("waits, ready, while another one leads, and takes over when that one stops", func() {
		w := newWorld()
		w.stop()
		elect := func(o *Options) { o.LeaderElect, o.LeaderElectionNamespace = true, w.credentials }
		w.startOperator(elect)
		w.merchant(aMerchant("coffee"))
		stopLeader := w.stop

		address := freeAddress()
		w.startOperator(elect, func(o *Options) { o.OpsAddress = address })
		Eventually(func(g Gomega) { g.Expect(get(g, address, "/readyz")).To(Equal("ok")) }).Should(Succeed())
		stopLeader()
		key := w.key(aKey("till", "coffee"))
		Expect(w.live(w.record(key), w.delivered("till-key"))).To(BeTrue())
	})

	It("leaves namespaces alone that it is not told to watch", func() {
		w := newWorld()
		elsewhere := aMerchant("coffee").Merchant
		home := w.namespace
		w.namespace = w.newNamespace("elsewhere-")
		w.apply(elsewhere)
		w.namespace = home
		w.merchant(aMerchant("books"))
		w.read(elsewhere)
		Expect(elsewhere.Finalizers).To(BeEmpty())
		Expect(elsewhere.Status.Conditions).To(BeEmpty())
	})

	It("watches all namespaces when it is told none", func() {
		w := newWorld()
		w.stop()
		w.startOperator(func(o *Options) { o.WatchNamespaces = nil })
		w.merchant(aMerchant("coffee"))
		key := w.key(aKey("till", "coffee"))
		change(w, key, func(k *v1alpha1.ApiKey) { k.Spec.Rotation.Trigger = "b" })
		w.awaitGeneration(key, 2)
	})
})

func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
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
