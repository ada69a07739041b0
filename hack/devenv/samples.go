package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// sample is the merchant of config/samples that the banner charges for, with a key of each mode.
type sample struct{ merchant, apiKey, testKey string }

// applySamples applies config/samples and returns when both replicas accept its API keys.
func (e *environment) applySamples(ctx context.Context) error {
	if err := e.apply(ctx, "config/samples"); err != nil {
		return err
	}
	for name, key := range map[string]*string{"acme-till-1": &e.sample.apiKey, "acme-test-1": &e.sample.testKey} {
		if err := eventually(ctx, "ApiKey "+name+" to be Ready", func(ctx context.Context) (err error) {
			e.sample.merchant, *key, err = e.readSample(ctx, name)
			return err
		}); err != nil {
			return err
		}
		for _, address := range e.addresses.public {
			url := "http://" + address + "/api/v1/merchant/me"
			caller := &http.Client{Transport: bearer(*key)}
			if err := eventually(ctx, url+" to accept the key of "+name, func(ctx context.Context) error {
				return answers(ctx, caller, url)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// readSample returns the merchant and the key of an ApiKey.
func (e *environment) readSample(ctx context.Context, name string) (merchant, plaintext string, err error) {
	var key v1alpha1.ApiKey
	if err := e.admin.Get(ctx, types.NamespacedName{Namespace: sampleNamespace, Name: name}, &key); err != nil {
		return "", "", err
	}
	if ready := meta.FindStatusCondition(key.Status.Conditions, "Ready"); ready == nil {
		return "", "", errors.New("it has no Ready condition yet")
	} else if ready.Status != "True" {
		return "", "", fmt.Errorf("%s: %s", ready.Reason, ready.Message)
	}
	if key.Spec.Delivery == nil {
		return "", "", errors.New("it has no spec.delivery")
	}
	var secret corev1.Secret
	delivered := types.NamespacedName{Namespace: sampleNamespace, Name: key.Spec.Delivery.SecretName}
	if err := e.admin.Get(ctx, delivered, &secret); err != nil {
		return "", "", err
	}
	return key.Spec.MerchantRef.Name, string(secret.Data["apiKey"]), nil
}

// apply applies a kustomize directory as the administrator.
func (e *environment) apply(ctx context.Context, directory string) error {
	kubectl := exec.CommandContext(ctx, filepath.Join(e.assets, "kubectl"),
		"--kubeconfig", e.kubeconfig("admin"), "--cache-dir", filepath.Join(e.directory, "kubectl"),
		"apply", "--server-side", "--kustomize", filepath.Join(e.root, directory))
	if output, err := kubectl.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl apply --kustomize %s: %w:\n%s", directory, err, strings.TrimSpace(string(output)))
	}
	return nil
}

// createSession creates a session whose page the banner links to. On a slow machine the first attempts may get 503, as Redis has 300 ms.
func (e *environment) createSession(ctx context.Context) error {
	url, once := "http://"+e.addresses.public[0]+"/api/v1/sessions", rand.Text()
	return eventually(ctx, url+" to create a session", func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
			strings.NewReader(`{"amountCents": 1250, "orderRef": "1000", "taxCents": 110, "customerEmail": "ada@example.com"}`))
		if err != nil {
			return err
		}
		request.Header.Set("Idempotency-Key", once)
		response, err := (&http.Client{Transport: bearer(e.sample.apiKey)}).Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusCreated {
			return fmt.Errorf("POST %s: %s", url, response.Status)
		}
		var created struct {
			SessionID string `json:"sessionId"`
		}
		if err := json.NewDecoder(response.Body).Decode(&created); err != nil {
			return fmt.Errorf("read the session: %w", err)
		}
		e.payerURL = "http://" + e.addresses.public[0] + "/pay/" + created.SessionID
		return nil
	})
}

// bearer adds an API key to each request.
type bearer string

func (key bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+string(key))
	return http.DefaultTransport.RoundTrip(request)
}

// issueRailToken requests a token for the rail of config/samples, which may settle sessions.
func (e *environment) issueRailToken(ctx context.Context) (err error) {
	e.railToken, err = e.token(ctx, "rails", "card-rail")
	return err
}

// token requests one that is valid longer than the environment runs.
func (e *environment) token(ctx context.Context, namespace, accountName string) (string, error) {
	const month = 30 * 24 * 60 * 60 // seconds
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: accountName}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(month))}}
	if err := e.admin.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("request a token for service account %s/%s: %w", namespace, accountName, err)
	}
	return request.Status.Token, nil
}

func (e *environment) receiverURL() string { return "http://" + e.addresses.receiver }

// startReceiver configures a webhook for the sample merchant, and starts its receiver with the signing secret. Events of other
// merchants are accepted too, and marked as not verified.
func (e *environment) startReceiver(ctx context.Context) error {
	merchant := &v1alpha1.Merchant{ObjectMeta: metav1.ObjectMeta{Namespace: sampleNamespace, Name: e.sample.merchant}}
	patch := fmt.Sprintf(`{"spec":{"webhook":{"url":%q}}}`, e.receiverURL()+"/hooks")
	if err := e.admin.Patch(ctx, merchant, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		return fmt.Errorf("set the webhook of Merchant %s: %w", merchant.Name, err)
	}
	var secret corev1.Secret
	delivered := types.NamespacedName{Namespace: sampleNamespace, Name: e.sample.merchant + "-webhook"}
	if err := eventually(ctx, "Secret "+delivered.String(), func(ctx context.Context) error {
		if err := e.admin.Get(ctx, delivered, &secret); err != nil {
			return err
		}
		if len(secret.Data["secret"]) == 0 {
			return errors.New("it has no key \"secret\"")
		}
		return nil
	}); err != nil {
		return err
	}
	path := filepath.Join(e.directory, "webhook-secret")
	if err := os.WriteFile(path, secret.Data["secret"], 0o600); err != nil {
		return fmt.Errorf("write the signing secret for the receiver: %w", err)
	}
	stop, err := e.programs.start("receiver", filepath.Join(e.root, "bin", "receiver"),
		"--address", e.addresses.receiver, "--secret-file", path, "--accept-unverified")
	if err != nil {
		return err
	}
	e.onStop("receiver", stop)
	return eventually(ctx, e.receiverURL(), func(ctx context.Context) error {
		return answers(ctx, http.DefaultClient, e.receiverURL()+"/events")
	})
}
