package keys

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

func (c *commands) issueCommand() *cobra.Command {
	var (
		merchant, secret string
		mode             = ModeFlag(v1alpha1.ModeLive)
		permissions      PermissionsFlag
		schedule         ScheduleFlags
		overlap          time.Duration
		write            WriteFlags
	)
	cmd := &cobra.Command{
		Use:   "issue NAME",
		Short: "Issue another key for a merchant",
		Long: "Create an ApiKey and wait until its key is delivered in a Secret. The key is printed only with --reveal.\n\n" +
			"Without --permissions the key may do what a till needs. A thief of it cannot see the turnover or rotate the key.",
		Example: "  kubectl merchant keys issue acme-kiosk --merchant acme-coffee -n shops\n" +
			"  kubectl merchant keys issue acme-kiosk-2 --merchant acme-coffee -n shops --expires-at 2100-01-01T00:00:00Z --reveal\n" +
			"  kubectl merchant keys issue acme-kiosk-4 --merchant acme-coffee -n shops --rotate-every 2160h\n" +
			"  kubectl merchant keys issue acme-developer --merchant acme-coffee -n shops --mode Test\n" +
			"  kubectl merchant keys issue acme-office --merchant acme-coffee -n shops --permissions read,list\n" +
			"  kubectl merchant keys issue acme-kiosk-3 --merchant acme-coffee -n shops --dry-run=server -o yaml",
		Args: terminal.Arguments("NAME"),
	}
	flags := cmd.Flags()
	flags.StringVar(&merchant, "merchant", "", "name of the Merchant (required)")
	_ = cmd.RegisterFlagCompletionFunc("merchant", c.access.CompleteMerchantFlag) // fails only for an unknown flag
	flags.StringVar(&secret, "secret-name", "", "Secret for the key; empty: the name followed by -key")
	flags.Var(&mode, "mode", "Live, or Test: sessions apart from real money, which a merchant's developer settles")
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"Live", "Test"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	permissions.Add(cmd)
	schedule.Add(cmd)
	flags.DurationVar(&overlap, "overlap", DefaultOverlap, "time for which an old key stays valid after a rotation")
	write.Add(cmd, c.IOStreams)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key := New(args[0], merchant, secret, overlap)
		key.Spec.Permissions = permissions
		if mode == ModeFlag(v1alpha1.ModeTest) {
			key.Spec.Mode = v1alpha1.ModeTest
		}
		if merchant == "" {
			return terminal.Usage(terminal.SeeHelp(cmd), "--merchant is missing")
		}
		if err := schedule.Apply(key, c.now()); err != nil {
			return err
		}
		if err := Check(key, overlap); err != nil {
			return err
		}
		kube, err := write.Connect(c.access)
		if err != nil {
			return err
		}
		key.Namespace = kube.Namespace
		if err := checkIssue(cmd.Context(), kube, key); err != nil {
			return err
		}
		if err := write.Create(cmd.Context(), kube, key); err != nil {
			return err
		}
		return write.Finish(cmd.Context(), kube, key)
	}
	return cmd
}

// DefaultOverlap is the time for which an old key stays valid after a rotation, if spec.rotation says nothing else.
const DefaultOverlap = 24 * time.Hour

// New returns the manifest of an ApiKey, without what has its default.
func New(name, merchant, secret string, overlap time.Duration) *v1alpha1.ApiKey {
	key := &v1alpha1.ApiKey{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ApiKey"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: merchant}},
	}
	if secret != "" {
		key.Spec.Delivery = &v1alpha1.Delivery{SecretName: secret}
	}
	if overlap != DefaultOverlap {
		key.Spec.Rotation.OverlapSeconds = new(int32(overlap / time.Second)) //nolint:gosec // its flag allows at most a year
	}
	return key
}

// Check refuses what the API server would refuse, by the names of flags.
func Check(key *v1alpha1.ApiKey, overlap time.Duration) error {
	if err := cluster.CheckName("ApiKey", key.Name); err != nil {
		return err
	}
	if err := cluster.CheckName("Merchant", key.Spec.MerchantRef.Name); err != nil {
		return err
	}
	if key.Spec.Delivery != nil {
		if err := cluster.CheckName("Secret", key.Spec.Delivery.SecretName); err != nil {
			return err
		}
	}
	return checkOverlap(overlap)
}

func checkOverlap(overlap time.Duration) error {
	if overlap < 0 || overlap > v1alpha1.MaxOverlapSeconds*time.Second || overlap%time.Second != 0 {
		return terminal.Usage("With 0 the old key is refused at once.", "--overlap must be whole seconds from 0s to 8760h, not %s", overlap)
	}
	return nil
}

// livingMerchant reads the Merchant of an ApiKey, without which no key works. It refuses one that is being deleted.
func livingMerchant(ctx context.Context, kube *cluster.Cluster, name string) (*v1alpha1.Merchant, error) {
	merchant, err := kube.Merchant(ctx, name)
	if err == nil && merchant.DeletionTimestamp != nil {
		return nil, terminal.Hinted("Its keys end with it, also if it is created again.", "Merchant %s is being deleted from namespace %s", name, kube.Namespace)
	}
	return merchant, err
}

// FreeName returns a name for another ApiKey of a merchant that none has: acme-1, acme-2 and so on, or with a use acme-office, acme-office-2.
func FreeName(merchant, use string, taken func(name string) bool) string {
	const longest = 63
	for n := 1; ; n++ {
		suffix := "-" + strconv.Itoa(n)
		switch {
		case use != "" && n == 1:
			suffix = "-" + use
		case use != "":
			suffix = "-" + use + suffix
		}
		name := strings.TrimRight(merchant[:min(len(merchant), longest-len(suffix))], "-.") + suffix
		if !taken(name) {
			return name
		}
	}
}

// checkIssue checks what a new ApiKey would wait for: its Merchant, and a free name for its Secret.
func checkIssue(ctx context.Context, kube *cluster.Cluster, key *v1alpha1.ApiKey) error {
	merchant, err := livingMerchant(ctx, kube, key.Spec.MerchantRef.Name)
	if err != nil {
		return err
	}
	if merchant.Spec.State == v1alpha1.MerchantClosed {
		return terminal.Hinted("Set spec.state of the Merchant to Active first.", "Merchant %s/%s is Closed, so each of its keys gets 403", kube.Namespace, merchant.Name)
	}
	err = kube.Get(ctx, client.ObjectKeyFromObject(key), &v1alpha1.ApiKey{})
	if err == nil {
		return nil // create says so
	}
	return kube.CheckSecretFree(ctx, key.DeliverySecretName(), "Choose another one with --secret-name.")
}
