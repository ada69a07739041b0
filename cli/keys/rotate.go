package keys

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
			"valid for the overlap; --overlap is for this rotation alone. An ApiKey that Git manages is refused: change the trigger in Git.",
		Example: "  kubectl merchant keys rotate acme-till-1 -n shops\n" +
			"  kubectl merchant keys rotate acme-till-1 -n shops --trigger INC-4711 --overlap 0s --reveal",
		Args:              terminal.Arguments("NAME"),
		ValidArgsFunction: c.access.CompleteKeys,
	}
	flags := cmd.Flags()
	flags.StringVar(&trigger, "trigger", "", "new spec.rotation.trigger, such as a ticket number; empty: the time")
	flags.DurationVar(&overlap, "overlap", 0, "how long the old key stays valid after this rotation, such as 1h; 0s: it is refused at once (default: spec.rotation.overlapSeconds)")
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
		former, generation := key.Spec.Rotation.OverlapSeconds, key.Generation
		err = write.change(cmd.Context(), kube, key, "rotated", func() {
			key.Spec.Rotation.Trigger = trigger
			if cmd.Flags().Changed("overlap") {
				key.Spec.Rotation.OverlapSeconds = new(int32(overlap / time.Second)) //nolint:gosec // at most a year
			}
		})
		if cmd.Flags().Changed("overlap") && key.Generation != generation && !write.DryRun() {
			return errors.Join(err, c.restoreOverlap(cmd.Context(), kube, key, former))
		}
		return err
	}
	return cmd
}

const restoreTimeout = 10 * time.Second

// restoreOverlap gives an ApiKey the overlap back that it had before a rotation with another one. Before the operator
// has rotated the key that would be the overlap of this rotation: then it stays, and a message says what to do.
func (c *commands) restoreOverlap(ctx context.Context, kube *cluster.Cluster, key *v1alpha1.ApiKey, former *int32) error {
	why, err := "The key is not rotated yet.", error(nil)
	if key.Status.ObservedTrigger == key.Spec.Rotation.Trigger {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout) // also if a person has ended the command since
		defer cancel()
		if err = kube.ChangeKey(ctx, key, func() { key.Spec.Rotation.OverlapSeconds = former }); err == nil {
			return nil
		}
		why, err = "The key is rotated.", fmt.Errorf("restore spec.rotation.overlapSeconds of ApiKey %s/%s: %w", key.Namespace, key.Name, err)
	}
	value := "null"
	if former != nil {
		value = strconv.Itoa(int(*former))
	}
	fmt.Fprintf(c.ErrOut, "%s The next rotation has the same overlap, unless you restore it after this one:\n"+
		"  kubectl patch apikey %s -n %s --type=merge -p '{\"spec\":{\"rotation\":{\"overlapSeconds\":%s}}}'\n", why, key.Name, key.Namespace, value)
	return err
}

// mayRotate refuses an ApiKey that this trigger does not rotate. Without a trigger, it refuses one that no trigger rotates.
func mayRotate(key *v1alpha1.ApiKey, trigger string) error {
	name, inGit := key.Namespace+"/"+key.Name, "Change spec.rotation.trigger in Git."
	if err := notDeleted(key); err != nil {
		return err
	}
	switch {
	case key.Spec.KeyDigest != "":
		return terminal.Hinted("Generate another key, and set spec.keyDigest to its SHA-256.", "the key of %s is externally generated", name)
	case key.DeliverySecretName() == "":
		return terminal.Hinted("Rotate it in the console, or with POST /api/v1/keys/rotate and the key itself.", "%s has delivery.policy None: nobody would get the new key", name)
	case trigger == "":
	case key.Spec.Rotation.Trigger == trigger:
		return terminal.Usage("Name another one.", "--trigger is already %q", trigger)
	default:
		inGit = fmt.Sprintf("Change spec.rotation.trigger in Git, for example to %q.", trigger)
	}
	if err := notInGit(key, inGit); err != nil {
		return err
	}
	if reason, blocked := Obstacle(key); blocked {
		return terminal.Hinted(fixFirst(key), "%s cannot be rotated now: %s", name, reason)
	}
	return nil
}

// RotateAdvice is the command that rotates an ApiKey. If it would be refused, it is what to do instead.
func RotateAdvice(key *v1alpha1.ApiKey) string {
	if err := mayRotate(key, ""); err != nil {
		return terminal.Hint(err)
	}
	return "kubectl merchant keys rotate " + key.Name + " -n " + key.Namespace
}

// notInGit refuses an ApiKey that a GitOps tool manages. It would undo the change, and undoing a trigger is another rotation.
func notInGit(key *v1alpha1.ApiKey, hint string) error {
	tool := cluster.ManagerName(gitops.FindManager(key))
	if tool == "" {
		return nil
	}
	return terminal.Hinted(hint, "%s/%s is managed by %s, which would undo the change", key.Namespace, key.Name, tool)
}
