package explain

import (
	"context"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/keys"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// Before a command is advised, the command itself or its first step is tried. On-call people may have no right to read ApiKeys and
// their Secrets. They get the advice untried, for somebody who has the right.

// giveCurrent says where the current key is. Only a key that the operator delivered is in a Secret, and that may be gone.
func giveCurrent(ctx context.Context, kube *cluster.Cluster, record published.KeyRecord) string {
	const give = "Give the till the current key"
	switch {
	case record.LastRotation.Cause == v1alpha1.RotationAPI:
		return give + ". It was issued over HTTP, so only its caller, or who was shown it in the console, has it."
	case record.Current.Prefix == "":
		return give + ". It was generated elsewhere, so only who generated it has it."
	}
	there := *kube
	there.Namespace = record.Source.Namespace
	key, err := there.ApiKey(ctx, record.Source.Name)
	if err == nil {
		_, err = keys.Reveal(ctx, &there, key)
	}
	if hint := terminal.Hint(err); hint != "" {
		return fmt.Sprintf("%s, if somebody has it: %v. %s", give, err, hint)
	}
	return fmt.Sprintf("%s: kubectl merchant keys reveal %s -n %s", give, record.Source.Name, record.Source.Namespace)
}

// enableAdvice says how to enable a disabled ApiKey.
func enableAdvice(ctx context.Context, kube *cluster.Cluster, source published.Source, now time.Time) string {
	const ifMeant = "If it was not on purpose: "
	there := *kube
	there.Namespace = source.Namespace
	key, err := there.ApiKey(ctx, source.Name)
	switch hint := terminal.Hint(err); {
	case err == nil:
		merchant, err := there.Merchant(ctx, key.Spec.MerchantRef.Name)
		if err == nil && merchant.Spec.State != v1alpha1.MerchantActive {
			return fmt.Sprintf("%sset spec.state of Merchant %s to Active, then: %s", ifMeant, merchant.Name, keys.EnableAdvice(key, now))
		}
		return ifMeant + keys.EnableAdvice(key, now)
	case hint != "":
		return fmt.Sprintf("%s%v. %s", ifMeant, err, hint)
	}
	return fmt.Sprintf("%skubectl merchant keys enable %s -n %s", ifMeant, source.Name, source.Namespace)
}
