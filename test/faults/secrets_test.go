//go:build faults

package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
	"github.com/merchant-operator/merchant-operator/test/logtest"
)

// secret remembers what must never be written anywhere.
func (c *cluster) secret(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text != "" {
		c.secrets = append(c.secrets, text)
		return text
	}
	_, file, line, _ := runtime.Caller(1)
	c.notIssued = append(c.notIssued, fmt.Sprintf("%s:%d", filepath.Base(file), line))
	return ""
}

// needles are what must be nowhere: of each secret the part that is secret, and of each API key its digest, which only
// the credentials namespace and Redis may know.
func (c *cluster) needles() (secrets, digests []string) {
	for _, text := range c.secrets {
		cut := strings.LastIndexByte(text, '_') // of an API key or a signing secret
		if signature := strings.LastIndexByte(text, '.'); signature > 0 {
			cut = signature // of a token
		}
		secrets = append(secrets, text[cut+1:])
		if _, err := apikey.Parse(text); err == nil {
			digests = append(digests, apikey.NewDigest(text).Hex())
		}
	}
	return secrets, digests
}

// searchSecrets looks for every key, signing secret and token there was.
func (c *cluster) searchSecrets(t *testing.T) {
	t.Helper()
	c.operator.keepMetrics()
	secrets, digests := c.needles()
	if len(secrets) == 0 || len(digests) == 0 {
		t.Error("nothing was issued, so nothing is searched for")
	}
	for _, place := range c.notIssued {
		t.Errorf("%s: no secret was issued", place)
	}
	both := append(digests, secrets...)
	searchFor(t, "the logs", c.logs.String(), both)
	searchFor(t, "the metrics", c.metrics.String(), both)
	searchFor(t, "the traces", c.spans.got.String(), both)
	searchFor(t, "the events of Kubernetes", c.objects(t, &corev1.EventList{}), both)
	searchFor(t, "Merchants and their status", c.objects(t, &v1alpha1.MerchantList{}), both)
	searchFor(t, "ApiKeys and their status", c.objects(t, &v1alpha1.ApiKeyList{}), both)
	searchFor(t, "published merchants", c.objects(t, &corev1.ConfigMapList{}), both)
	searchFor(t, "published keys", c.publishedKeys(t), secrets)
}

func searchFor(t *testing.T, where, text string, needles []string) {
	t.Helper()
	if text == "" {
		t.Errorf("there is nothing in %s to be searched", where)
	}
	for _, needle := range needles {
		if strings.Contains(text, needle) {
			t.Errorf("a secret is in %s: %.4s…", where, needle)
		}
	}
	t.Logf("searched %d bytes of %s for %d secrets", len(text), where, len(needles))
}

// objects are all of a kind as JSON.
func (c *cluster) objects(t *testing.T, list client.ObjectList) string {
	t.Helper()
	if err := c.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// publishedKeys are what the data plane knows of API keys: their digests alone.
func (c *cluster) publishedKeys(t *testing.T) string {
	t.Helper()
	var secrets corev1.SecretList
	if err := c.Client.List(t.Context(), &secrets, client.InNamespace(kubetest.CredentialsNamespace)); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, secret := range secrets.Items {
		if secret.Type != published.KeySecretType {
			continue
		}
		fmt.Fprintln(&text, secret.ObjectMeta.String())
		for name, value := range secret.Data {
			fmt.Fprintf(&text, "%s: %s\n", name, value)
		}
	}
	return text.String()
}

// keepMetrics remembers what a running process shows.
func (p *process) keepMetrics() {
	if p.running == nil {
		return
	}
	answer, err := prober.Get("http://" + p.ops + "/metrics")
	if err != nil {
		return // it is frozen, or about to end
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode == http.StatusOK {
		_, _ = io.Copy(&shared.metrics, answer.Body)
	}
}

// spans takes the traces of all processes over OTLP.
type spans struct {
	*httptest.Server

	got logtest.Buffer // as they are on the wire, where text is text
}

func receiveSpans() *spans {
	s := &spans{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.Copy(&s.got, request.Body)
	}))
	return s
}

// variables have a process send one trace of twenty, and soon, for it may be killed.
func (s *spans) variables() []string {
	return []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + s.URL, "OTEL_BSP_SCHEDULE_DELAY=200",
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.05",
	}
}
