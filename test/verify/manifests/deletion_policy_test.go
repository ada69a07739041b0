package manifests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/merchant-operator/merchant-operator/test/await"
	"github.com/merchant-operator/merchant-operator/test/repository"
)

// Without controllers a deleted namespace stays in Terminating, which is the moment that matters here.
func TestMerchantsAreDeletedOnlyWhenClosed(t *testing.T) {
	const patience = time.Minute
	install(t, "crd")
	apply(t, "deletion-policy")
	t.Cleanup(func() { kubectl(t, "", "delete", "-k", repository.Path("config", "deletion-policy")) })
	for _, namespace := range []string{"guarded", "leaving"} {
		kubectl(t, "", "create", "namespace", namespace)
		for _, name := range []string{"kept", "closed"} {
			kubectl(t, `
apiVersion: merchant-operator.io/v1alpha1
kind: Merchant
metadata: {name: `+name+`, finalizers: [merchant-operator.io/test]}
spec: {displayName: Shop}
`, "apply", "-n", namespace, "-f", "-")
		}
	}

	const want = `Merchant kept is Active. Deleting it ends its API keys for good. To delete it, first set spec.state to Closed, in Git if it comes from there: ` +
		`kubectl patch merchant kept -n guarded --type=merge -p '{"spec":{"state":"Closed"}}'`
	await.Seeing(t, patience, "an active Merchant cannot be deleted", func() (string, bool) {
		_, err := cluster.Kubectl("", "delete", "merchant", "kept", "-n", "guarded", "--dry-run=server")
		return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), want)
	})
	if printed, err := cluster.Kubectl("", "delete", "merchants", "--all", "-n", "guarded"); err == nil {
		t.Errorf("all active Merchants were deleted at once:\n%s", printed)
	}

	kubectl(t, "", "patch", "merchant", "closed", "-n", "guarded", "--type=merge", "-p", `{"spec":{"state":"Closed"}}`)
	kubectl(t, "", "delete", "merchant", "closed", "-n", "guarded", "--wait=false")
	assertGoneWithItsFinalizer(t, "guarded", "closed")

	kubectl(t, "", "delete", "namespace", "leaving", "--wait=false")
	await.Seeing(t, patience, "Merchants of a namespace that is deleted can be deleted", func() (string, bool) {
		_, err := cluster.Kubectl("", "delete", "merchants", "--all", "-n", "leaving", "--wait=false")
		return fmt.Sprint(err), err == nil
	})
	assertGoneWithItsFinalizer(t, "leaving", "kept")
}

// assertGoneWithItsFinalizer does what the operator does at the end of its work.
func assertGoneWithItsFinalizer(t *testing.T, namespace, name string) {
	t.Helper()
	kubectl(t, "", "patch", "merchant", name, "-n", namespace, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	if printed := kubectl(t, "", "get", "merchant", name, "-n", namespace, "--ignore-not-found"); printed != "" {
		t.Errorf("Merchant %s/%s is still there:\n%s", namespace, name, printed)
	}
}
