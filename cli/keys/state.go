package keys

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

// stateOwner owns the state of a key. Flux undoes each change of a manager whose name begins with "kubectl": a leaked key that was
// disabled in an incident would work again after the next sync.
const stateOwner = "merchant-operator-kubectl"

// stateCommand sets spec.state.
func (c *commands) stateCommand(verb string, state v1alpha1.ApiKeyState) *cobra.Command {
	var write WriteFlags
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
		ValidArgsFunction: c.access.CompleteKeys,
	}
	write.addWithoutReveal(cmd, c.IOStreams)
	force, hint := false, "Change spec.state to "+string(state)+" in Git."
	if state == v1alpha1.ApiKeyDisabled {
		cmd.Flags().BoolVar(&force, "force", false, "disable the key now, even if Argo CD or Flux manages it and can undo that")
		hint += " If it must not work a minute longer, also add --force."
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kube, err := write.Connect(c.access)
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
			fmt.Fprintf(c.ErrOut, "Warning: %v. Change spec.state to Disabled in Git too, now.\n", err)
		}
		if state == v1alpha1.ApiKeyActive {
			if err := notDeleted(key); err != nil {
				return err
			}
			if _, err := livingMerchant(cmd.Context(), kube, key.Spec.MerchantRef.Name); err != nil {
				return err
			}
		}
		return write.change(cmd.Context(), kube, key, verb+"d", func() { key.Spec.State = state }, client.FieldOwner(stateOwner))
	}
	return cmd
}

// notDeleted refuses an ApiKey that is being deleted: whatever is changed in it, its key ends.
func notDeleted(key *v1alpha1.ApiKey) error {
	if key.DeletionTimestamp == nil {
		return nil
	}
	return terminal.Hinted(issueAnother(key), "%s/%s is being deleted, and its key ends with it", key.Namespace, key.Name)
}

// EnableAdvice is the command that enables a disabled ApiKey of an active Merchant. If it would be refused, or the key all the same, it is why, and what
// to do instead.
func EnableAdvice(key *v1alpha1.ApiKey, now time.Time) string {
	err := cmp.Or(notDeleted(key), notInGit(key, "Change spec.state to Active in Git."))
	if err == nil && key.Spec.ExpiresAt != nil && !now.Before(key.Spec.ExpiresAt.Time) {
		err = terminal.Hinted("First set a later spec.expiresAt, or issue another key.", "%s/%s has expired too", key.Namespace, key.Name)
	}
	if err != nil {
		return fmt.Sprintf("%v. %s", err, terminal.Hint(err))
	}
	return "kubectl merchant keys enable " + key.Name + " -n " + key.Namespace
}
