package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// sample is the merchant of config/samples that the banner charges for.
type sample struct{ merchant, apiKey string }

// applySamples applies config/samples and returns when both replicas accept the key that came of it.
func (e *environment) applySamples(ctx context.Context) error {
	if err := e.apply(ctx, "config/samples"); err != nil {
		return err
	}
	const name = "acme-till-1"
	if err := eventually(ctx, "ApiKey "+name+" to be Ready", func(ctx context.Context) (err error) {
		e.sample, err = e.readSample(ctx, name)
		return err
	}); err != nil {
		return err
	}
	for _, address := range e.addresses.public {
		url := "http://" + address + "/api/v1/merchant/me"
		client := &http.Client{Transport: bearer(e.sample.apiKey)}
		if err := eventually(ctx, url+" to accept the sample's key", func(ctx context.Context) error {
			return answers(ctx, client, url)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (e *environment) readSample(ctx context.Context, name string) (sample, error) {
	var key v1alpha1.ApiKey
	if err := e.admin.Get(ctx, types.NamespacedName{Namespace: sampleNamespace, Name: name}, &key); err != nil {
		return sample{}, err
	}
	if ready := meta.FindStatusCondition(key.Status.Conditions, "Ready"); ready == nil {
		return sample{}, errors.New("it has no Ready condition yet")
	} else if ready.Status != "True" {
		return sample{}, fmt.Errorf("%s: %s", ready.Reason, ready.Message)
	}
	if key.Spec.Delivery == nil {
		return sample{}, errors.New("it delivers no Secret")
	}
	var secret corev1.Secret
	delivered := types.NamespacedName{Namespace: sampleNamespace, Name: key.Spec.Delivery.SecretName}
	if err := e.admin.Get(ctx, delivered, &secret); err != nil {
		return sample{}, err
	}
	return sample{merchant: key.Spec.MerchantRef.Name, apiKey: string(secret.Data["apiKey"])}, nil
}

// apply applies a kustomize directory as the administrator, with the kubectl of this very version.
func (e *environment) apply(ctx context.Context, directory string) error {
	kubectl := exec.CommandContext(ctx, filepath.Join(e.assets, "kubectl"),
		"--kubeconfig", e.kubeconfig("admin"), "--cache-dir", filepath.Join(e.directory, "kubectl"),
		"apply", "--server-side", "--kustomize", filepath.Join(e.root, directory))
	if output, err := kubectl.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply --kustomize %s: %w:\n%s", directory, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// bearer adds an API key to each request.
type bearer string

func (key bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+string(key))
	return http.DefaultTransport.RoundTrip(request)
}
