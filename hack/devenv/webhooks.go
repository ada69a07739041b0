package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// The rail of config/samples, which may settle sessions.
const (
	railNamespace = "rails"
	railAccount   = "card-rail"
)

// issueRailToken asks for a token as the rail's pod would have one.
func (e *environment) issueRailToken(ctx context.Context) (err error) {
	e.railToken, err = e.token(ctx, railNamespace, railAccount)
	return err
}

// token is one that outlives any session here.
func (e *environment) token(ctx context.Context, namespace, accountName string) (string, error) {
	const month = 30 * 24 * 60 * 60 // seconds
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: accountName}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(month))}}
	if err := e.admin.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("request a token for service account %s/%s: %w", namespace, accountName, err)
	}
	return request.Status.Token, nil
}

func (e *environment) sinkURL() string { return "http://" + e.addresses.sink }

// startSink lets the sample merchant have a webhook, and starts a receiver for it with the secret that came of it.
// The receiver takes other merchants' events as well, and marks them as not verified.
func (e *environment) startSink(ctx context.Context) error {
	merchant := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: sampleNamespace, Name: e.sample.merchant}}
	patch := fmt.Sprintf(`{"spec":{"webhook":{"url":%q}}}`, e.sinkURL()+"/hooks")
	if err := e.admin.Patch(ctx, merchant, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("give Merchant %s a webhook: %w", merchant.Name, err)
	}
	var secret corev1.Secret
	delivered := types.NamespacedName{Namespace: sampleNamespace, Name: e.sample.merchant + "-webhook"}
	if err := eventually(ctx, "Secret "+delivered.String(), func(ctx context.Context) error {
		if err := e.admin.Get(ctx, delivered, &secret); err != nil {
			return err
		}
		if len(secret.Data["secret"]) == 0 {
			return errors.New("it has no data key \"secret\"")
		}
		return nil
	}); err != nil {
		return err
	}
	path := filepath.Join(e.directory, "webhook-secret")
	if err := os.WriteFile(path, secret.Data["secret"], 0o600); err != nil {
		return fmt.Errorf("hand the signing secret to the receiver: %w", err)
	}
	stop, err := e.programs.start("receiver", filepath.Join(e.root, "bin", "receiver"),
		"--address", e.addresses.sink, "--secret-file", path, "--accept-unverified")
	if err != nil {
		return err
	}
	e.onStop("receiver", stop)
	return eventually(ctx, e.sinkURL(), func(ctx context.Context) error {
		return answers(ctx, http.DefaultClient, e.sinkURL()+"/events")
	})
}
