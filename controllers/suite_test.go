package controllers

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

func TestOperator(t *testing.T) {
	RegisterFailHandler(Fail)
	// Far more than anything needs on an idle machine.
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	RunSpecs(t, "Operator")
}

// environment is the one API server of the suite. Each test has namespaces and an operator of its own.
var environment *envtest.Environment

var _ = BeforeSuite(func() { environment = kubetest.Start(GinkgoTB()) })
