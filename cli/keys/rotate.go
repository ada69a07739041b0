package keys

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/gitops"
)

func (c *commands) rotateCommand() *cobra.Command {
	var (
		trigger string
		overlap time.Duration
		write   WriteFlags
	)
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Replace the key of an ApiKey by a new one",
		Long: "Change spec.rotation.trigger of an ApiKey, as a commit in Git would, and wait until the new key is delivered. The old key stays\n" +
			"valid for the overlap. An ApiKey that Git manages is refused: change the trigger in Git.",
		Example: "  kubectl merchant keys rotate acme-till-1 -n shops\n" +
			"  kubectl merchant keys rotate acme-till-1 -n shops --trigger INC-4711 --overlap 0s --reveal",
		Args:              terminal.Arguments("NAME"),
		ValidArgsFunction: c.access.CompleteKeys,
	}
	flags := cmd.Flags()
	flags.StringVar(&trigger, "trigger", "", "new spec.rotation.trigger, such as a ticket number; empty: the time")
	flags.DurationVar(&overlap, "overlap", 0, "new spec.rotation.overlapSeconds, such as 1h; 0s: the old key is refused at once (default: unchanged)")
	write.Add(cmd, c.IOStreams)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		const longest = 256
		if len(trigger) > longest {
			return terminal.Usage("Use a date or a ticket number.", "--trigger has %d characters, at most %d are allowed", len(trigger), longest)
		}
		if err := checkOverlap(overlap); err != nil {
			return err
		}
		kube, err := write.Connect(c.access)
		if err != nil {
			return err
		}
		key, err := kube.ApiKey(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if trigger == "" {
			trigger = c.now().UTC().Format(time.RFC3339Nano)
		}
		if err := mayRotate(key, trigger); err != nil {
			return err
		}
		if _, err := livingMerchant(cmd.Context(), kube, key.Spec.MerchantRef.Name); err != nil {
			return err
		}
		return write.change(cmd.Context(), kube, key, "rotated", func() {
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
		return terminal.Hinted(fixFirst(key), "%s cannot be rotated now: %s", name, reason)
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
