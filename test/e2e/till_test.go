//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// apply makes a Merchant and an ApiKey of the same name, as a platform team would, and returns the key that was
// delivered when both are ready.
func (c *cluster) apply(ctx context.Context, name string, change ...func(*v1alpha1.Merchant)) (key string) {
	GinkgoHelper()
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: shops, Name: name},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "The shop " + name,
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 500, Burst: 1000},
		},
	}
	for _, one := range change {
		one(merchant)
	}
	apiKey := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: shops, Name: name},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: name},
			Delivery:    &v1alpha1.Delivery{SecretName: name + "-key"},
		},
	}
	Expect(c.Create(ctx, merchant)).To(Succeed())
	Expect(c.Create(ctx, apiKey)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(merchant), merchant)).To(Succeed())
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(apiKey), apiKey)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(merchant.Status.Conditions, "Ready")).To(BeTrue(), "%+v", merchant.Status)
		g.Expect(meta.IsStatusConditionTrue(apiKey.Status.Conditions, "Ready")).To(BeTrue(), "%+v", apiKey.Status)
	}).WithContext(ctx).Should(Succeed(), "%s is ready", name)

	key = c.secret(ctx, name+"-key", "apiKey")
	c.waitForKey(ctx, key)
	return key
}

// waitForKey waits until every replica knows the key. Each hears of it by its own watch.
func (c *cluster) waitForKey(ctx context.Context, key string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		for _, url := range c.replicas(ctx, g) {
			g.Expect(till.read(ctx, url, key, "/api/v1/merchant/me").Status).To(Equal(http.StatusOK), url)
		}
	}).WithContext(ctx).Should(Succeed(), "every replica knows the key")
}

func (c *cluster) secret(ctx context.Context, name, field string) string {
	GinkgoHelper()
	var secret corev1.Secret
	Expect(c.Get(ctx, client.ObjectKey{Namespace: shops, Name: name}, &secret)).To(Succeed())
	Expect(secret.Data).To(HaveKey(field))
	return string(secret.Data[field])
}

// replicas are the addresses of the API's pods.
func (c *cluster) replicas(ctx context.Context, g Gomega) []string {
	var urls []string
	for _, pod := range c.podsOf(ctx, g, release+"-apiserver") {
		if ready(pod) {
			urls = append(urls, "http://"+pod.Status.PodIP+":8080")
		}
	}
	g.Expect(urls).NotTo(BeEmpty())
	return urls
}

type session struct {
	SessionID   string `json:"sessionId"`
	Status      string `json:"status"`
	AmountCents int64  `json:"amountCents"`
	Idempotent  bool   `json:"idempotent"`
}

func (a agent) charge(ctx context.Context, url, key, idempotencyKey string) (made session) {
	GinkgoHelper()
	got := a.do(ctx, exchange{
		Method: http.MethodPost, URL: url + "/api/v1/sessions", Body: `{"amountCents": 1250, "orderRef": "1001"}`,
		Headers: map[string]string{"Authorization": "Bearer " + key, "Idempotency-Key": idempotencyKey},
	})
	Expect(got.Status).To(Equal(http.StatusCreated), "%+v", got)
	Expect(json.Unmarshal([]byte(got.Body), &made)).To(Succeed())
	return made
}

// read makes a GET with a key, or without when it is empty.
func (a agent) read(ctx context.Context, url, key, path string) answer {
	GinkgoHelper()
	headers := map[string]string{}
	if key != "" {
		headers["Authorization"] = "Bearer " + key
	}
	return a.do(ctx, exchange{Method: http.MethodGet, URL: url + path, Headers: headers})
}

func (a agent) post(ctx context.Context, url, key, path, body string) answer {
	GinkgoHelper()
	return a.do(ctx, exchange{Method: http.MethodPost, URL: url + path, Body: body, Headers: map[string]string{"Authorization": "Bearer " + key}})
}
