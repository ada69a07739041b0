package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/commandline"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

// stateOwner owns the state of a key. Flux undoes each change of a manager whose name begins with "kubectl": a leaked key that was
// disabled in an incident would work again after the next sync.
const stateOwner = "merchant-operator-kubectl"

func (p *plugin) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Issue, rotate, disable, enable and reveal API keys",
		Args:  terminal.NeedCommand,
		RunE:  commandline.PrintHelp,
	}
	cmd.AddCommand(p.issueCommand(), p.rotateCommand(), p.stateCommand("disable", v1alpha1.ApiKeyDisabled), p.stateCommand("enable", v1alpha1.ApiKeyActive), p.revealCommand())
	return cmd
}

func (p *plugin) issueCommand() *cobra.Command {
	var (
		merchant, secret string
		mode             = modeFlag(v1alpha1.ModeLive)
		permissions      permissionsFlag
		expiresAt        timeFlag
		overlap          time.Duration
		write            writeFlags
	)
	cmd := &cobra.Command{
		Use:   "issue NAME",
		Short: "Issue another key for a merchant",
		Long: "Create an ApiKey and wait until its key is delivered in a Secret. The key is printed only with --reveal.\n\n" +
			"Without --permissions the key may do what a till needs. A thief of it cannot see the turnover or rotate the key.",
		Example: "  kubectl merchant keys issue acme-kiosk --merchant acme-coffee -n shops\n" +
			"  kubectl merchant keys issue acme-kiosk-2 --merchant acme-coffee -n shops --expires-at 2100-01-01T00:00:00Z --reveal\n" +
			"  kubectl merchant keys issue acme-developer --merchant acme-coffee -n shops --mode Test\n" +
			"  kubectl merchant keys issue acme-office --merchant acme-coffee -n shops --permissions read,list\n" +
			"  kubectl merchant keys issue acme-kiosk-3 --merchant acme-coffee -n shops --dry-run=server -o yaml",
		Args: terminal.Arguments("NAME"),
	}
	flags := cmd.Flags()
	flags.StringVar(&merchant, "merchant", "", "name of the Merchant (required)")
	_ = cmd.RegisterFlagCompletionFunc("merchant", p.access.CompleteMerchantFlag) // fails only for an unknown flag
	flags.StringVar(&secret, "secret-name", "", "Secret for the key; empty: the name followed by -key")
	flags.Var(&mode, "mode", "Live, or Test: sessions apart from real money, which a merchant's developer settles")
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"Live", "Test"}, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	permissions.add(cmd)
	flags.Var(&expiresAt, "expires-at", "time from which the key is refused, such as 2100-01-01T00:00:00Z; empty: never")
	flags.DurationVar(&overlap, "overlap", defaultOverlap, "time for which an old key stays valid after a rotation")
	write.add(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key := newApiKey(args[0], merchant, secret, overlap)
		key.Spec.Permissions = permissions
		if mode == modeFlag(v1alpha1.ModeTest) {
			key.Spec.Mode = v1alpha1.ModeTest
		}
		if !expiresAt.IsZero() {
			key.Spec.ExpiresAt = &metav1.Time{Time: expiresAt.Time}
		}
		switch {
		case merchant == "":
			return terminal.Usage(terminal.SeeHelp(cmd), "--merchant is missing")
		case !expiresAt.IsZero() && !expiresAt.After(p.now()):
			return terminal.Usage("Name a later time.", "--expires-at is past")
		}
		if err := checkKey(key, overlap); err != nil {
			return err
		}
		kube, err := write.connect(p)
		if err != nil {
			return err
		}
		key.Namespace = kube.Namespace
		if err := checkIssue(cmd.Context(), kube, key); err != nil {
			return err
		}
		if err := write.create(cmd.Context(), p, kube, key); err != nil {
			return err
		}
		return write.finish(cmd.Context(), p, kube, key)
	}
	return cmd
}

const defaultOverlap = 24 * time.Hour

// newApiKey returns the manifest of an ApiKey, without what has its default.
func newApiKey(name, merchant, secret string, overlap time.Duration) *v1alpha1.ApiKey {
	key := &v1alpha1.ApiKey{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ApiKey"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: merchant}},
	}
	if secret != "" {
		key.Spec.Delivery = &v1alpha1.Delivery{SecretName: secret}
	}
	if overlap != defaultOverlap {
		key.Spec.Rotation.OverlapSeconds = new(int32(overlap / time.Second)) //nolint:gosec // checkKey limits it to a year
	}
	return key
}

// checkKey refuses what the API server would refuse, by the names of flags.
func checkKey(key *v1alpha1.ApiKey, overlap time.Duration) error {
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
	const year = 365 * 24 * time.Hour
	if overlap < 0 || overlap > year || overlap%time.Second != 0 {
		return terminal.Usage("With 0 the old key is refused at once.", "--overlap must be whole seconds from 0s to 8760h, not %s", overlap)
	}
	return nil
}

func (p *plugin) rotateCommand() *cobra.Command {
	var (
		trigger string
		overlap time.Duration
		write   writeFlags
	)
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Replace the key of an ApiKey by a new one",
		Long: "Change spec.rotation.trigger of an ApiKey, as a commit in Git would, and wait until the new key is delivered. The old key stays\n" +
			"valid for the overlap. An ApiKey that Git manages is refused: change the trigger in Git.",
		Example: "  kubectl merchant keys rotate acme-till-1 -n shops\n" +
			"  kubectl merchant keys rotate acme-till-1 -n shops --trigger INC-4711 --overlap 0s --reveal",
		Args:              terminal.Arguments("NAME"),
		ValidArgsFunction: p.access.CompleteKeys,
	}
	flags := cmd.Flags()
	flags.StringVar(&trigger, "trigger", "", "new spec.rotation.trigger, such as a ticket number; empty: the time")
	flags.DurationVar(&overlap, "overlap", 0, "new spec.rotation.overlapSeconds, such as 1h; 0s: the old key is refused at once (default: unchanged)")
	write.add(cmd, p)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		const longest = 256
		if len(trigger) > longest {
			return terminal.Usage("Use a date or a ticket number.", "--trigger has %d characters, at most %d are allowed", len(trigger), longest)
		}
		if err := checkOverlap(overlap); err != nil {
			return err
		}
		kube, err := write.connect(p)
		if err != nil {
			return err
		}
		key, err := kube.ApiKey(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if trigger == "" {
			trigger = p.now().UTC().Format(time.RFC3339Nano)
		}
		if err := mayRotate(key, trigger); err != nil {
			return err
		}
		if _, err := livingMerchant(cmd.Context(), kube, key.Spec.MerchantRef.Name); err != nil {
			return err
		}
		return write.change(cmd.Context(), p, kube, key, "rotated", func() {
			key.Spec.Rotation.Trigger = trigger
			if cmd.Flags().Changed("overlap") {
				key.Spec.Rotation.OverlapSeconds = new(int32(overlap / time.Second)) //nolint:gosec // at most a year
			}
		})
	}
	return cmd
}

// mayRotate refuses an ApiKey whose trigger does not rotate it.
func mayRotate(key *v1alpha1.ApiKey, trigger string) error {
	name := key.Namespace + "/" + key.Name
	switch {
	case key.Spec.KeyDigest != "":
		return terminal.Hinted("Generate another key, and set spec.keyDigest to its SHA-256.", "the key of %s is externally generated", name)
	case key.DeliverySecretName() == "":
		return terminal.Hinted("Rotate it in the console, or with POST /api/v1/keys/rotate and the key itself.", "%s has delivery.policy None: nobody would get the new key", name)
	case key.Spec.Rotation.Trigger == trigger:
		return terminal.Usage("Name another one.", "--trigger is already %q", trigger)
	}
	if err := notInGit(key, fmt.Sprintf("Change spec.rotation.trigger in Git, for example to %q.", trigger)); err != nil {
		return err
	}
	if reason, blocked := obstacle(key); blocked {
		return terminal.Hinted(mendFirst(key), "%s cannot be rotated now: %s", name, reason)
	}
	return nil
}

// notInGit refuses an ApiKey that a GitOps tool manages. It would undo the change, and undoing a trigger is another rotation.
func notInGit(key *v1alpha1.ApiKey, hint string) error {
	tool := cluster.ManagerName(gitops.FindManager(key))
	if tool == "" {
		return nil
	}
	return terminal.Hinted(hint, "%s/%s is managed by %s, which would undo the change", key.Namespace, key.Name, tool)
}

// stateCommand sets spec.state.
func (p *plugin) stateCommand(verb string, state v1alpha1.ApiKeyState) *cobra.Command {
	var write writeFlags
	long := "Set spec.state of an ApiKey to Disabled: its key gets 401 until it is enabled."
	if state == v1alpha1.ApiKeyActive {
		long = "Set spec.state of an ApiKey to Active."
	}
	cmd := &cobra.Command{
		Use:               verb + " NAME",
		Short:             map[string]string{"disable": "Refuse a key until it is enabled", "enable": "Accept a disabled key again"}[verb],
		Long:              long,
		Example:           "  kubectl merchant keys " + verb + " acme-till-1 -n shops",
		Args:              terminal.Arguments("NAME"),
		ValidArgsFunction: p.access.CompleteKeys,
	}
	write.addWithoutReveal(cmd)
	force, hint := false, "Change spec.state to "+string(state)+" in Git."
	if state == v1alpha1.ApiKeyDisabled {
		cmd.Flags().BoolVar(&force, "force", false, "disable the key now, even if Argo CD or Flux manages it and can undo that")
		hint += " If it must not work a minute longer, also add --force."
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kube, err := write.connect(p)
		if err != nil {
			return err
		}
		key, err := kube.ApiKey(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if err := notInGit(key, hint); err != nil && !force {
			return err
		} else if err != nil {
			fmt.Fprintf(p.ErrOut, "Warning: %v. Change spec.state to Disabled in Git too, now.\n", err)
		}
		if state == v1alpha1.ApiKeyActive {
			if _, err := livingMerchant(cmd.Context(), kube, key.Spec.MerchantRef.Name); err != nil {
				return err
			}
		}
		return write.change(cmd.Context(), p, kube, key, verb+"d", func() { key.Spec.State = state }, client.FieldOwner(stateOwner))
	}
	return cmd
}

// settled is how far the operator is with an ApiKey as it is now. A disabled key is settled once it is refused, any other once it is
// accepted, or is there to be issued.
func settled(key *v1alpha1.ApiKey) cluster.Progress {
	ready := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.ReadyCondition)
	usable := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.UsableCondition)
	if ready == nil || usable == nil || ready.ObservedGeneration != key.Generation {
		return cluster.Progress{State: cluster.Unseen}
	}
	isReady, accepted := ready.Status == metav1.ConditionTrue, usable.Status == metav1.ConditionTrue
	stalled := meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.StalledCondition)
	state := ready.Reason + ": " + ready.Message
	switch {
	case key.Spec.State == v1alpha1.ApiKeyDisabled: // what is in the way of a new key does not keep an old one alive
		return cluster.Progress{Done: usable.Status == metav1.ConditionFalse, State: state, Stalled: stalled}
	case isReady && key.DeliverySecretName() != "" && key.Status.ObservedTrigger != key.Spec.Rotation.Trigger:
		return cluster.Progress{State: "the key is not rotated yet"}
	}
	return cluster.Progress{Done: isReady && (accepted || ready.Reason == v1alpha1.ReasonNotIssued), State: state, Stalled: stalled || isReady && !accepted}
}

// obstacle is why a new key cannot be issued, or would not work, until a person changes something else.
func obstacle(key *v1alpha1.ApiKey) (reason string, blocked bool) {
	ready := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.ReadyCondition)
	if ready == nil || ready.ObservedGeneration != key.Generation {
		return "", false
	}
	switch ready.Reason {
	case v1alpha1.ReasonMerchantNotFound, v1alpha1.ReasonExpired, v1alpha1.ReasonMerchantClosed:
		blocked = true
	default: // a new key of a disabled ApiKey, or of a suspended Merchant, works as soon as that ends
		blocked = meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.StalledCondition)
	}
	return ready.Reason + ": " + ready.Message, blocked
}

// mendFirst says what to do about an obstacle.
func mendFirst(key *v1alpha1.ApiKey) string {
	if newReadiness(key.Status.Conditions, v1alpha1.ReadyCondition).Reason == v1alpha1.ReasonMerchantNotFound {
		return "Issue another key, for a merchant that exists: kubectl merchant keys issue NAME --merchant MERCHANT -n " + key.Namespace
	}
	return "Change that first. All that there is to do: kubectl merchant status " + key.Spec.MerchantRef.Name + " -n " + key.Namespace
}

// livingMerchant reads the Merchant of an ApiKey, without which no key works. It refuses one that is being deleted.
func livingMerchant(ctx context.Context, kube *cluster.Cluster, name string) (*v1alpha1.Merchant, error) {
	merchant, err := kube.Merchant(ctx, name)
	if err == nil && merchant.DeletionTimestamp != nil {
		return nil, terminal.Hinted("Its keys end with it, also if it is created again.", "Merchant %s is being deleted from namespace %s", name, kube.Namespace)
	}
	return merchant, err
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

// create creates an object, or checks it in a dry run. It is read first, so that a missing right to read it, which is needed to wait
// for it, leaves nothing half done.
func (w *writeFlags) create(ctx context.Context, p *plugin, kube *cluster.Cluster, object client.Object) error {
	existing := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
	if err := kube.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("read %s %s/%s: %w", object.GetObjectKind().GroupVersionKind().Kind, kube.Namespace, object.GetName(), err)
	}
	if err := createWith(ctx, kube, object, w.createOptions()...); err != nil {
		return err
	}
	return w.print(p, object, "created")
}

// dryRunCreate lets the API server check an object.
func dryRunCreate(ctx context.Context, kube *cluster.Cluster, object client.Object) error {
	return createWith(ctx, kube, object, client.DryRunAll)
}

func createWith(ctx context.Context, kube *cluster.Cluster, object client.Object, options ...client.CreateOption) error {
	err := kube.Create(ctx, object.DeepCopyObject().(client.Object), options...) //nolint:forcetypeassert // a copy is of the same type
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if apierrors.IsAlreadyExists(err) {
		return terminal.Hinted("Choose another name, or look at it with: kubectl merchant status -n "+kube.Namespace, "%s %s/%s already exists", kind, kube.Namespace, object.GetName())
	}
	if err != nil {
		return fmt.Errorf("create %s %s/%s: %w", kind, kube.Namespace, object.GetName(), err)
	}
	return nil
}
