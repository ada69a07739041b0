package v1alpha1_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// What the API server makes of the CRDs is a property of the API server, so the rules are tried on a
// real one.
func TestAPI(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "api/v1alpha1")
}

var (
	cluster *rest.Config
	kube    client.Client
)

var _ = BeforeSuite(func() {
	cluster = kubetest.Start(GinkgoTB()).Config
	scheme := runtime.NewScheme()
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	var err error
	kube, err = client.New(cluster, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
})

// create makes the object and removes it at the end of the spec.
func create(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Expect(kube.Create(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(kube.Delete(ctx, object))).To(Succeed())
	})
}
