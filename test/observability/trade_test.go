package observability

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
)

// What a trader writes where people write such things, and must be nowhere in what the programs show.
const (
	orderRef = "table 7, jane.doe@example.com"
	hookPath = "/hooks/0a1b2c3d"
	// What callers say of a trace, and where they call from.
	foreignTrace    = "4bf92f3577b34da6a3ce929d0e0e4736"
	stateOfStranger = "anything-at-all"
	payerAddress    = "203.0.113.77"
	badKey          = "mk_live_aaaaaaaaaaaa_ThisIsNobodysKeyButItLooksLikeOne000000"
)

// trade has something happen to every metric: a charge that is cancelled and told of, a key that is rotated, and what
// strangers try.
func (p *product) trade() error {
	ctx := context.Background()
	told := make(chan struct{}, 8)
	shop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		p.delivered.Store(new(request.Header.Clone()))
		w.WriteHeader(http.StatusOK)
		told <- struct{}{}
	}))
	p.closers = append(p.closers, func() error { shop.Close(); return nil })
	key, err := p.onboard(shop.URL + hookPath + "?token=hush")
	if err != nil {
		return err
	}
	created, err := p.call(ctx, http.MethodPost, p.public+"/api/v1/sessions", key, fmt.Sprintf(`{"amountCents": 1250, "orderRef": %q}`, orderRef))
	if err != nil {
		return err
	}
	id, _ := created["sessionId"].(string)
	if id == "" {
		return fmt.Errorf("no session: %v", created)
	}
	p.secrets = append(p.secrets, key, id, orderRef, "jane.doe", hookPath, "hush", badKey, stateOfStranger, payerAddress)
	for _, request := range []struct{ method, url, key string }{
		{http.MethodGet, p.public + "/api/v1/sessions/" + id, key},
		{http.MethodGet, p.public + "/api/v1/sessions/" + id, badKey},
		{http.MethodGet, p.public + "/api/v1/sessions/" + id + "/nothing", key},
		{"BREW", p.public + "/api/v1/sessions/" + id, key},
		{http.MethodOptions, p.public + "/api/v1/sessions/" + id, ""},
		{http.MethodPost, p.internal + "/internal/v1/sessions/" + id + "/settlement", "a.b.c"},
		{http.MethodPost, p.public + "/api/v1/sessions/" + id + "/cancel", key},
	} {
		if _, err := p.call(ctx, request.method, request.url, request.key, ""); err != nil {
			return err
		}
	}
	for range 10 { // more than a client address may
		if _, err := p.call(ctx, http.MethodGet, p.public+"/api/v1/public/sessions/"+id, "", ""); err != nil {
			return err
		}
	}
	rotated, err := p.call(ctx, http.MethodPost, p.public+"/api/v1/keys/rotate", key, "")
	if err != nil {
		return err
	}
	fresh, _ := rotated["fullKey"].(string)
	if fresh == "" {
		return errors.New("the key was not rotated")
	}
	p.secrets = append(p.secrets, fresh)
	for range 2 { // the end of the session, and the rotation
		<-told
	}
	return p.damage()
}

// damage writes into Redis what the programs would not have, until each of them has met it.
func (p *product) damage() error {
	ctx := context.Background()
	redis := goredis.NewClient(&goredis.Options{Addr: p.redis.Addr(), Protocol: 2, DisableIdentity: true})
	defer func() { _ = redis.Close() }()
	const id = "ps_00abcdefghijklmnopqrstuvwx"
	for _, key := range []string{"{b00}:session:" + id, "{b01}:due"} {
		if err := redis.Set(ctx, key, "neither a hash nor a sorted set", 0).Err(); err != nil {
			return err
		}
	}
	for _, role := range []string{apiserverRole, dispatcherRole} {
		if err := p.eventually("the "+role+" has met it", func() (bool, error) {
			if _, err := p.call(ctx, http.MethodGet, p.public+"/api/v1/public/sessions/"+id, "", ""); err != nil {
				return false, err
			}
			_, text, err := p.get(ctx, role, "/metrics", p.token)
			return strings.Contains(text, "redis_operation_errors_total{"), err
		}); err != nil {
			return err
		}
	}
	return redis.Del(ctx, "{b01}:due").Err()
}

// onboard applies a Merchant and an ApiKey and returns the delivered key.
func (p *product) onboard(hook string) (key string, err error) {
	ctx := context.Background()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shops"}}
	merchant := &v1alpha1.Merchant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "acme-coffee"},
		Spec: v1alpha1.MerchantSpec{
			DisplayName: "Acme Coffee",
			RateLimit:   v1alpha1.RateLimit{RequestsPerSecond: 1000, Burst: 1000},
			Webhook:     &v1alpha1.Webhook{URL: hook},
		},
	}
	till := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "till"},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: "acme-coffee"},
			Delivery:    &v1alpha1.Delivery{SecretName: "till-key"},
		},
	}
	for _, object := range []client.Object{namespace, merchant, till} {
		if err := p.kube.Create(ctx, object); err != nil {
			return "", err
		}
	}
	return key, p.eventually("the key works", func() (bool, error) {
		var secret corev1.Secret
		if err := p.kube.Get(ctx, client.ObjectKey{Namespace: "shops", Name: "till-key"}, &secret); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		key = string(secret.Data["apiKey"])
		answer, err := p.call(ctx, http.MethodGet, p.public+"/api/v1/merchant/me", key, "")
		return answer["merchant"] != nil, err
	})
}

// call sends a request and returns the answer, whatever its status.
func (p *product) call(ctx context.Context, method, url, key, body string) (map[string]any, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	request.Header.Set("Traceparent", "00-"+foreignTrace+"-00f067aa0ba902b7-01")
	request.Header.Set("Tracestate", "vendor="+stateOfStranger)
	request.Header.Set("X-Forwarded-For", payerAddress)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	var decoded map[string]any
	return decoded, json.Unmarshal(text, &decoded)
}
