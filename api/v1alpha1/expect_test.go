package v1alpha1_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// expectRefused expects the API server to refuse the object over the one field, in words that hold
// the message. Being refused over anything else as well would hide a rule that does not work.
func expectRefused(ctx context.Context, object client.Object, field, message string) {
	GinkgoHelper()
	expectInvalid(kube.Create(ctx, object, client.DryRunAll), field, message)
}

func expectInvalid(err error, field, message string) {
	GinkgoHelper()
	Expect(err).To(HaveOccurred(), "the API server accepted it")
	Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	Expect(err).To(MatchError(And(ContainSubstring(field), ContainSubstring(message))))
	if field != "spec.expiresAt" { // a rule in words cannot read a date-time that is none
		Expect(err).NotTo(MatchError(Or(ContainSubstring("should match '"), ContainSubstring("chars long"))), "a person reads this")
	}
	var status apierrors.APIStatus
	Expect(errors.As(err, &status)).To(BeTrue())
	for _, cause := range status.Status().Details.Causes {
		// "<nil>" is the API server's note that other rules were not tried.
		Expect(cause.Field).To(BeElementOf(field, "<nil>"), cause.Message)
	}
}
