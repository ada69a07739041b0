package keys

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/cluster"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
)

func (c *commands) revealCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "reveal NAME",
		Short: "Print the key of an ApiKey from its Secret",
		Long: "Print the key of an ApiKey from its Secret, and nothing else, to stdout. A key that is in no Secret cannot be printed by anybody;\n" +
			"the command then says what to do.",
		Example:           "  kubectl merchant keys reveal acme-till-1 -n shops",
		Args:              terminal.Arguments("NAME"),
		ValidArgsFunction: c.access.CompleteKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			kube, err := c.access.Connect()
			if err != nil {
				return err
			}
			key, err := kube.ApiKey(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return reveal(cmd.Context(), c.IOStreams, kube, key)
		},
	}
}

// reveal prints the key.
func reveal(ctx context.Context, streams genericiooptions.IOStreams, kube *cluster.Cluster, key *v1alpha1.ApiKey) error {
	plaintext, err := Reveal(ctx, kube, key)
	if err != nil {
		return err
	}
	fmt.Fprintf(streams.ErrOut, "The key of %s/%s, generation %d:\n", key.Namespace, key.Name, key.Status.KeyGeneration)
	if usable := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.UsableCondition); usable != nil && usable.Status == metav1.ConditionFalse {
		fmt.Fprintf(streams.ErrOut, "This key is refused now: %s: %s\n", terminal.Inline(usable.Reason), terminal.Inline(usable.Message))
	}
	fmt.Fprintf(streams.Out, "%s\n", plaintext)
	return nil
}

// Reveal returns the plaintext of the current key from its Secret.
func Reveal(ctx context.Context, kube *cluster.Cluster, key *v1alpha1.ApiKey) (string, error) {
	if err := Delivered(key); err != nil {
		return "", err
	}
	var secret corev1.Secret
	err := kube.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.DeliverySecretName()}, &secret)
	if apierrors.IsNotFound(err) {
		return "", terminal.Hinted("For a new key: "+RotateAdvice(key), "Secret %s/%s is gone", key.Namespace, key.DeliverySecretName())
	}
	if err != nil {
		return "", fmt.Errorf("read Secret %s/%s: %w", key.Namespace, key.DeliverySecretName(), err)
	}
	plaintext := string(secret.Data["apiKey"])
	// A Secret of somebody else, or of an older key, would cost the reader an hour.
	if string(secret.Data["prefix"]) != key.Status.Prefix || plaintext == "" {
		return "", terminal.Hinted("Try again; if it stays so: "+RotateAdvice(key), "Secret %s/%s does not have the current key, which begins with %s", key.Namespace, secret.Name, key.Status.Prefix)
	}
	return plaintext, nil
}

// Delivered explains why no Secret has the key.
func Delivered(key *v1alpha1.ApiKey) error {
	name := key.Namespace + "/" + key.Name
	switch {
	case key.Spec.KeyDigest != "":
		return terminal.Hinted("Ask the person who generated it.", "the key of %s is externally generated; the cluster has only its SHA-256", name)
	case key.DeliverySecretName() == "":
		return terminal.Hinted("It was shown once, when it was issued. If it is lost, rotate it in the console.", "%s has delivery.policy None: no Secret has its key", name)
	}
	if reason, blocked := Obstacle(key); blocked && !meta.IsStatusConditionTrue(key.Status.Conditions, v1alpha1.DeliveredCondition) {
		return terminal.Hinted(fixFirst(key), "no Secret has the key of %s: %s", name, reason)
	}
	condition := meta.FindStatusCondition(key.Status.Conditions, v1alpha1.DeliveredCondition)
	switch {
	case condition == nil:
		return terminal.Hinted("See: kubectl merchant status "+key.Spec.MerchantRef.Name+" -n "+key.Namespace, "the operator has not delivered the key of %s yet", name)
	case condition.Reason == v1alpha1.ReasonRotatedOverHTTP:
		return terminal.Hinted("If it is lost: "+RotateAdvice(key), "the key of %s was rotated over HTTP, so only the caller has it", name)
	case condition.Status != "True":
		return terminal.Hinted("For a new key: "+RotateAdvice(key), "no Secret has the key of %s: %s", name, condition.Message)
	}
	return nil
}
