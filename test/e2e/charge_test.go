//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

func takesACharge(ctx SpecContext) {
	key := shared.apply(ctx, "charge")
	made := till.charge(ctx, publicURL, key, "order-1001")
	Expect(made.Status).To(Equal("PENDING"))
	again := till.charge(ctx, publicURL, key, "order-1001")
	Expect(again.SessionID).To(Equal(made.SessionID), "a retry charges twice")
	Expect(again.Idempotent).To(BeTrue())

	seen := till.read(ctx, publicURL, "", "/api/v1/public/sessions/"+made.SessionID)
	Expect(seen.Status).To(Equal(http.StatusOK))
	Expect(seen.Body).To(MatchJSON(`{"merchantName": "The shop charge", "amountCents": 1250, "status": "PENDING"}`))
	Expect(till.read(ctx, publicURL, "mk_live_nobody", "/api/v1/sessions/"+made.SessionID).Status).To(Equal(http.StatusUnauthorized))
}

// showsAPayerThePage reads it with all that it loads. The long poll is answered by a replica that has not ended the session itself, if
// the Service chooses so: then the message comes through Redis.
func showsAPayerThePage(ctx SpecContext) {
	key := shared.apply(ctx, "page")
	made := till.charge(ctx, publicURL, key, "order-1")
	page := till.read(ctx, publicURL, "", "/pay/"+made.SessionID)
	Expect(page.Status).To(Equal(http.StatusOK))
	Expect(page.Body).To(And(ContainSubstring("The shop page"), ContainSubstring("$12.50")))
	assets := regexp.MustCompile(`(?:href|src)="(/pay/static/[^"]+)"`).FindAllStringSubmatch(page.Body, -1)
	Expect(assets).To(HaveLen(2), "a stylesheet and a script")
	for _, path := range []string{assets[0][1], assets[1][1], "/pay/" + made.SessionID + "/qr.svg", "/widget/v1.js"} {
		Expect(till.read(ctx, publicURL, "", path).Status).To(Equal(http.StatusOK), path)
	}
	ended := make(chan answer, 1)
	go func() {
		defer GinkgoRecover()
		ended <- till.read(ctx, publicURL, "", "/api/v1/public/sessions/"+made.SessionID+"?wait=25")
	}()
	Expect(till.post(ctx, publicURL, key, "/api/v1/sessions/"+made.SessionID+"/cancel", "").Status).To(Equal(http.StatusOK))
	Eventually(ended).WithContext(ctx).Should(Receive(HaveField("Body", ContainSubstring("CANCELLED"))))
	Expect(till.read(ctx, publicURL, "", "/pay/"+made.SessionID).Body).NotTo(ContainSubstring(`class="qr"`), "an ended session is paid")
}

func settles(ctx SpecContext) {
	key := shared.apply(ctx, "settle")
	made := till.charge(ctx, publicURL, key, "order-1")
	path := "/internal/v1/sessions/" + made.SessionID + "/settlement"
	paid := `{"paymentRef": "pay-1", "outcome": "COMPLETED", "amountCents": 1250}`

	Expect(till.post(ctx, internalURL, key, path, paid).Status).To(BeElementOf(http.StatusUnauthorized, http.StatusForbidden),
		"a merchant's key settles")
	Expect(till.post(ctx, internalURL, shared.token(ctx, "default"), path, paid).Status).To(Equal(http.StatusForbidden), "any account settles")

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: shops, Name: "card-rail"}}
	Expect(client.IgnoreAlreadyExists(shared.Create(ctx, account))).To(Succeed())
	got := till.post(ctx, internalURL, shared.token(ctx, "card-rail"), path, paid)
	Expect(got.Status).To(Equal(http.StatusOK), "%+v", got)
	Expect(till.read(ctx, publicURL, "", "/api/v1/public/sessions/"+made.SessionID).Body).To(ContainSubstring("COMPLETED"))
}

// token is a service account's, for the internal port.
func (c *cluster) token(ctx SpecContext, account string) string {
	GinkgoHelper()
	request, err := c.pods.CoreV1().ServiceAccounts(shops).CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"merchant-operator"}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return request.Status.Token
}

func deliversAWebhook(ctx SpecContext) {
	key := shared.apply(ctx, "webhook", func(m *v1alpha1.Merchant) {
		m.Spec.Webhook = &v1alpha1.Webhook{URL: fmt.Sprintf("http://till.%s.svc.cluster.local:8080/hooks", shops)}
	})
	made := till.charge(ctx, publicURL, key, "order-1")
	Expect(till.post(ctx, publicURL, key, "/api/v1/sessions/"+made.SessionID+"/cancel", "").Status).To(Equal(http.StatusOK))

	verifier, err := standardwebhooks.NewWebhook(shared.secret(ctx, "webhook-webhook", "secret"))
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		g.Expect(till.hooks(ctx)).NotTo(BeEmpty())
	}).WithContext(ctx).Should(Succeed(), "the webhook arrives")
	came := till.hooks(ctx)[0]
	headers := http.Header{}
	for name, value := range came.Headers {
		headers.Set(name, value)
	}
	Expect(verifier.Verify([]byte(came.Body), headers)).To(Succeed())
	var event struct {
		Type string `json:"type"`
		Data struct {
			SessionID string `json:"sessionId"`
			OrderRef  string `json:"orderRef"`
		} `json:"data"`
	}
	Expect(json.Unmarshal([]byte(came.Body), &event)).To(Succeed())
	Expect(event.Type).To(Equal("session.cancelled"))
	Expect(event.Data.SessionID).To(Equal(made.SessionID))
	Expect(event.Data.OrderRef).To(Equal("1001"))
}

// rotatesEverywhere asks each replica by its own address, at once after the answer, several times over.
func rotatesEverywhere(ctx SpecContext) {
	const rounds = 10
	key := shared.apply(ctx, "rotation")
	replicas := shared.replicas(ctx, Default)
	Expect(replicas).To(HaveLen(3))
	for round := range rounds {
		fresh := rotate(ctx, replicas[round%len(replicas)], key)
		for _, url := range replicas {
			Expect(till.read(ctx, url, key, "/api/v1/merchant/me").Status).To(Equal(http.StatusUnauthorized), "%s takes the old key", url)
			Expect(till.read(ctx, url, fresh, "/api/v1/merchant/me").Status).To(Equal(http.StatusOK), "%s refuses the new key", url)
		}
		key = fresh
	}
	proved("%d rotations, each seen by %d replicas at once", rounds, len(replicas))
}

// rotate replaces a key through the API, and returns the new one.
func rotate(ctx SpecContext, url, key string) string {
	GinkgoHelper()
	got := till.post(ctx, url, key, "/api/v1/keys/rotate", "")
	Expect(got.Status).To(Equal(http.StatusOK), "%+v", got)
	var answer struct {
		FullKey string `json:"fullKey"`
	}
	Expect(json.Unmarshal([]byte(got.Body), &answer)).To(Succeed())
	return answer.FullKey
}
