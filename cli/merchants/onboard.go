package merchants

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/keys"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// OnboardCommand returns kubectl merchant onboard.
func OnboardCommand(access *cluster.Access, streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	c := &commands{IOStreams: streams, access: access, now: now}
	var (
		spec     v1alpha1.MerchantSpec
		currency string
		zone     string
		webhook  string
		allow    blocksFlag
		key      string
		secret   string
		may      keys.PermissionsFlag
		schedule keys.ScheduleFlags
		write    keys.WriteFlags
	)
	cmd := &cobra.Command{
		Use:   "onboard NAME --display-name TEXT",
		Short: "Create a merchant with its first key",
		Long: "Create a Merchant and an ApiKey, and wait until the key works. The key stays in its Secret; --reveal prints it.\n\n" +
			"A second run with the same flags continues an interrupted one. It never changes a Merchant that is there.\n\n" +
			"Without --permissions the key may do what a till needs. A thief of it cannot see the turnover or rotate the key.",
		Example: "  kubectl merchant onboard blue-bakery --display-name \"Blue Bakery\" -n shops\n" +
			"  kubectl merchant onboard corner-kiosk --display-name Kiosk --allow 203.0.113.0/24 --webhook https://shop.example/hooks -n shops --reveal\n" +
			"  kubectl merchant onboard tea-house --display-name \"Tea House\" -n shops --dry-run=server -o yaml > tea-house.yaml",
		Args: terminal.Arguments("NAME"),
	}
	flags := cmd.Flags()
	flags.StringVar(&spec.DisplayName, "display-name", "", "name that payers see (required)")
	flags.StringVar(&currency, "currency", "", "ISO 4217 code of the currency of its amounts; empty: USD")
	flags.StringVar(&zone, "time-zone", "", "IANA name of the time zone in which its day begins, such as Europe/Berlin; empty: UTC")
	flags.Var(&allow, "allow", "addresses and CIDR blocks from which its keys are accepted, comma-separated; empty: any address")
	flags.StringVar(&webhook, "webhook", "", "https URL that receives its events; empty: none")
	flags.StringVar(&key, "key", "", "name of the ApiKey; empty: the name of the merchant followed by -1")
	flags.StringVar(&secret, "secret-name", "", "Secret for the key; empty: the name of the ApiKey followed by -key")
	may.Add(cmd)
	schedule.Add(cmd)
	write.Add(cmd, c.IOStreams)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if spec.DisplayName == "" {
			return terminal.Usage(terminal.SeeHelp(cmd), "--display-name is missing")
		}
		spec.Currency, spec.TimeZone, spec.IPAllowlist = v1alpha1.Currency(currency), v1alpha1.TimeZone(zone), allow
		if webhook != "" {
			spec.Webhook = &v1alpha1.Webhook{URL: webhook}
		}
		if key == "" {
			key = args[0] + "-1"
		}
		merchant := &v1alpha1.Merchant{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Merchant"},
			ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Spec: spec,
		}
		apiKey := keys.New(key, merchant.Name, secret, keys.DefaultOverlap)
		apiKey.Spec.Permissions = may
		if err := schedule.Apply(apiKey, c.now()); err != nil {
			return err
		}
		if err := cluster.CheckName("Merchant", merchant.Name); err != nil {
			return err
		}
		if err := keys.Check(apiKey, keys.DefaultOverlap); err != nil {
			return err
		}
		kube, err := write.Connect(c.access)
		if err != nil {
			return err
		}
		return c.onboard(cmd.Context(), kube, merchant, apiKey, &write)
	}
	return cmd
}

func (c *commands) onboard(ctx context.Context, kube *cluster.Cluster, merchant *v1alpha1.Merchant, key *v1alpha1.ApiKey, write *keys.WriteFlags) error {
	merchant.Namespace, key.Namespace = kube.Namespace, kube.Namespace
	existing, existingKey := &v1alpha1.Merchant{}, &v1alpha1.ApiKey{}
	// Both are checked before one is written, so that a mistake leaves nothing half done.
	keepMerchant, err := mayKeep(ctx, kube, merchant, existing, func() []string { return differences(merchant.Spec, existing.Spec) })
	if err != nil {
		return err
	}
	keepKey, err := mayKeep(ctx, kube, key, existingKey, func() []string { return keyDifferences(key, existingKey) })
	if err != nil {
		return err
	}
	if err := checkNewSecrets(ctx, kube, merchant, keepMerchant, key, keepKey); err != nil {
		return err
	}
	if !keepKey && !write.DryRun() {
		if err := keys.CheckCreate(ctx, kube, key); err != nil {
			return err
		}
	}
	if err := createUnless(ctx, kube, write, merchant, keepMerchant); err != nil {
		return err
	}
	if err := createUnless(ctx, kube, write, key, keepKey); err != nil {
		return err
	}
	if write.DryRun() {
		return nil
	}
	if err := write.Await(ctx, kube, merchant, func() cluster.Progress {
		ready := meta.FindStatusCondition(merchant.Status.Conditions, v1alpha1.ReadyCondition)
		if ready == nil || ready.ObservedGeneration != merchant.Generation {
			return cluster.Progress{State: cluster.Unseen}
		}
		return cluster.Progress{
			Done: ready.Status == metav1.ConditionTrue, State: ready.Reason + ": " + ready.Message,
			Stalled: meta.IsStatusConditionTrue(merchant.Status.Conditions, v1alpha1.StalledCondition),
		}
	}); err != nil {
		return err
	}
	c.printNotes(merchant)
	return write.Finish(ctx, kube, key)
}

// keyDifferences are those that forbid to keep an ApiKey that is there already.
func keyDifferences(key, existing *v1alpha1.ApiKey) []string {
	if existing.Spec.MerchantRef != key.Spec.MerchantRef || existing.DeliverySecretName() != key.DeliverySecretName() {
		return []string{"merchantRef or delivery"}
	}
	if have, want := keys.PermissionsFlag(existing.Spec.Permissions), keys.PermissionsFlag(key.Spec.Permissions); have.String() != want.String() {
		return []string{"permissions (" + have.String() + ")"}
	}
	if !existing.Spec.ExpiresAt.Equal(key.Spec.ExpiresAt) || !ptr.Equal(existing.Spec.Rotation.EverySeconds, key.Spec.Rotation.EverySeconds) {
		return []string{"rotation.everySeconds or expiresAt"}
	}
	return nil
}

// printNotes says what a person may not expect of a new merchant, or has to pass on.
func (c *commands) printNotes(merchant *v1alpha1.Merchant) {
	if merchant.Spec.TimeZone == "" {
		fmt.Fprintln(c.ErrOut, "The merchant's day begins at midnight UTC. If the shop is elsewhere, set spec.timeZone: its daily totals and files go by that.")
	}
	if merchant.Spec.Webhook != nil {
		fmt.Fprintf(c.ErrOut, "The signing secret of the webhook is in Secret %s, under the data key secret.\n", merchant.Status.WebhookSecretName)
	}
}

// mayKeep reports whether an object is there already, and nothing differs: an earlier run was interrupted.
func mayKeep(ctx context.Context, kube *cluster.Cluster, object, existing client.Object, differing func() []string) (bool, error) {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	err := kube.Get(ctx, client.ObjectKeyFromObject(object), existing)
	if apierrors.IsNotFound(err) && !cluster.NotInstalled(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s/%s: %w", kind, kube.Namespace, object.GetName(), err)
	}
	if fields := differing(); len(fields) > 0 {
		return false, terminal.Hinted("Choose another name. To change it, edit its manifest; for another key: kubectl merchant keys issue",
			"%s %s/%s already exists with another %s", kind, kube.Namespace, object.GetName(), strings.Join(fields, ", "))
	}
	return true, nil
}

// checkNewSecrets checks the names of the Secrets that the operator will write for new objects.
func checkNewSecrets(ctx context.Context, kube *cluster.Cluster, merchant *v1alpha1.Merchant, keepMerchant bool, key *v1alpha1.ApiKey, keepKey bool) error {
	if !keepMerchant && merchant.Spec.Webhook != nil {
		if err := kube.CheckSecretFree(ctx, merchant.Name+"-webhook", "Delete it, or choose another name for the merchant."); err != nil {
			return err
		}
	}
	if keepKey {
		return nil
	}
	return kube.CheckSecretFree(ctx, key.DeliverySecretName(), "Choose another one with --secret-name.")
}

// createUnless creates an object that is not there yet.
func createUnless(ctx context.Context, kube *cluster.Cluster, write *keys.WriteFlags, object client.Object, there bool) error {
	if there {
		return write.Print(object, "unchanged")
	}
	return write.Create(ctx, kube, object)
}

// differences are the fields that onboard sets and that are otherwise in a Merchant that is there.
func differences(want, have v1alpha1.MerchantSpec) (fields []string) {
	url := func(webhook *v1alpha1.Webhook) string {
		if webhook == nil {
			return ""
		}
		return webhook.URL
	}
	sorted := func(blocks []v1alpha1.IPBlock) []v1alpha1.IPBlock { return slices.Sorted(slices.Values(blocks)) }
	currency, zone := cmp.Or(want.Currency, v1alpha1.DefaultCurrency), cmp.Or(want.TimeZone, v1alpha1.DefaultTimeZone)
	for field, same := range map[string]bool{
		"displayName": want.DisplayName == have.DisplayName, "currency": currency == have.Currency, "timeZone": zone == cmp.Or(have.TimeZone, v1alpha1.DefaultTimeZone),
		"ipAllowlist": slices.Equal(sorted(want.IPAllowlist), sorted(have.IPAllowlist)), "webhook": url(want.Webhook) == url(have.Webhook),
	} {
		if !same {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}

// blocksFlag is a flag with addresses and CIDR blocks.
type blocksFlag []v1alpha1.IPBlock

// String returns the value of the flag.
func (b *blocksFlag) String() string {
	return terminal.Join(*b, ",")
}

// Type is the name of the value in --help.
func (*blocksFlag) Type() string { return "cidrs" }

// Set adds blocks; the flag may be repeated.
func (b *blocksFlag) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		_, addressErr := netip.ParseAddr(part)
		block, blockErr := netip.ParsePrefix(part)
		if addressErr != nil && blockErr != nil {
			return fmt.Errorf("%q is neither an address nor a CIDR block; use a form like 203.0.113.7 or 203.0.113.0/24", part)
		}
		if blockErr == nil && block != block.Masked() {
			return fmt.Errorf("%q has host bits; use %s", part, block.Masked())
		}
		*b = append(*b, v1alpha1.IPBlock(part))
	}
	return nil
}
