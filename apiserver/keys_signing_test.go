package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/apiserver"
)

// signingPath is what a ClusterRole names, as docs/rotation-api.md says.
const signingPath = "/internal/v1/merchants/{merchantID}/signing-secret"

// nonce is as a random one would be.
const nonce = "nonce-of-the-one-who-rotated"

// webhookIssuer makes a service account that may read new signing secrets and returns a token of it.
func (f *fixture) webhookIssuer(name string) string {
	f.t.Helper()
	token := f.account(name)
	f.allow(name, signingPath, signingPath, "post")
	return token
}

// signingSecret publishes a signing secret that a trigger has made, as the operator does.
func (f *fixture) signingSecret(merchant published.MerchantRecord) published.WebhookRecord {
	f.t.Helper()
	now := time.Now()
	record := published.WebhookRecord{
		Version: 1, MerchantID: merchant.MerchantID,
		Source:         published.Source{Namespace: merchant.Namespace, Name: merchant.Name, UID: types.UID(f.namespace + "/" + merchant.Name)},
		Current:        published.IssuedSecret{Secret: published.NewSigningSecret(), CreatedAt: now},
		Retired:        []published.RetiredSecret{{Secret: published.NewSigningSecret(), ValidUntil: now.Add(time.Hour).Truncate(time.Second)}},
		HandledTrigger: rotation.SigningTrigger(nonce),
	}
	secret, err := published.EncodeWebhook(f.namespace, record)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := kube.CoreV1().Secrets(f.namespace).Create(f.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	return record
}

// showSecret asks for the signing secret of a merchant.
func (r *replica) showSecret(merchantID, token, body string) result {
	r.t.Helper()
	return r.internally(http.MethodPost, rotation.SigningPathFor(merchantID), token, body)
}

func (f *fixture) signingRequest(name, nonce string) string {
	return fmt.Sprintf(`{"namespace":"shops","name":%q,"uid":%q,"nonce":%q,"actor":"Ann <ann@shop.example>"}`, name, f.namespace+"/"+name, nonce)
}

// Who has the right reads the secret from the Kubernetes API, and nobody else.
func TestShowSigningSecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	merchant := f.merchant("acme")
	record := f.signingSecret(merchant)
	console, rotator, rail := f.webhookIssuer("console"), f.issuer("rotator"), f.rail("bank")
	r := f.start()
	show := func(token string) result {
		return r.showSecret(merchant.MerchantID, token, f.signingRequest("acme", nonce))
	}
	if got := show(console).want(t, http.StatusOK); got.text("secret") != record.Current.Secret.Reveal() {
		t.Error("the answer is not the secret of the merchant")
	}
	for name, test := range map[string]struct {
		got    result
		status int
		code   string
	}{
		"no token":                             {show(""), 401, ""},
		"a rail":                               {show(rail), 403, "account_not_allowed"},
		"an account that may rotate keys only": {show(rotator), 403, "account_not_allowed"},
	} {
		if code := test.got.want(t, test.status).header.Get("Error-Code"); code != test.code || strings.Contains(string(test.got.raw), "whsec_") {
			t.Errorf("%s: Error-Code %q, want %q: %s", name, code, test.code, test.got.raw)
		}
	}
}

func TestShowSigningSecret_PlainHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	merchant := f.merchant("acme")
	f.signingSecret(merchant)
	console := f.webhookIssuer("console")
	r := f.start(func(o *apiserver.Options) { o.InternalAddress = ":0" })
	got := r.showSecret(merchant.MerchantID, console, f.signingRequest("acme", nonce)).want(t, http.StatusForbidden)
	if got.header.Get("Error-Code") != "tls_required" {
		t.Errorf("Error-Code %q", got.header.Get("Error-Code"))
	}
}
