//go:build faults

package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/merchant-operator/merchant-operator/internal/session"
)

const (
	sessions = "/api/v1/sessions"
	me       = "/api/v1/merchant/me"
	rotate   = "/api/v1/keys/rotate"
)

// caller is a client that sends each request once.
type caller struct{ http *http.Client }

func newCaller() caller {
	return caller{&http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: 5 * time.Second}}}
}

// answer is what a caller sees.
type answer struct {
	status int
	header http.Header
	body   map[string]any
	took   time.Duration
	closes bool // the connection, after this
}

func (a answer) text(field string) string {
	text, _ := a.body[field].(string)
	return text
}

// errNotSent says that a request has not reached anybody.
var errNotSent = errors.New("not sent")

// call sends one request. An error means that there was no answer, and what came of the request is unknown, unless it
// is errNotSent. headers are pairs of name and value.
func (c caller) call(base, method, path, bearer, body string, headers ...string) (answer, error) {
	request, err := http.NewRequest(method, base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", errNotSent, err)
	}
	request.GetBody = nil // or the transport would send what has an Idempotency-Key again by itself
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	start := time.Now()
	response, err := c.http.Do(request)
	if err != nil {
		if dialled, ok := errors.AsType[*net.OpError](err); ok && dialled.Op == "dial" {
			return answer{}, fmt.Errorf("%w: %w", errNotSent, err)
		}
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	got := answer{status: response.StatusCode, header: response.Header, took: time.Since(start), closes: response.Close}
	if err == nil && len(raw) > 0 {
		err = json.Unmarshal(raw, &got.body)
	}
	return got, err
}

// unavailable reports whether an answer leaves open what came of the request.
func (a answer) unavailable() bool { return a.status == http.StatusServiceUnavailable }

// railToken is of a new account that may settle.
func (s *stage) railToken() string {
	s.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "rail"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "rail-" + s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "merchant-operator-rail"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "rail"}},
	}
	request := &authenticationv1.TokenRequest{}
	for _, create := range []func() error{
		func() error { return shared.kube.Create(s.t.Context(), account) },
		func() error { return shared.kube.Create(s.t.Context(), binding) },
		func() error { return shared.kube.SubResource("token").Create(s.t.Context(), account, request) },
	} {
		if err := create(); err != nil {
			s.t.Fatal(err)
		}
	}
	return shared.secret(request.Status.Token)
}

// bucketTag is what the keys of a merchant's state begin with.
func bucketTag(merchantID string) string {
	return fmt.Sprintf("{b%02d}:", session.BucketOf(merchantID))
}

// mustCall fails the test unless the answer has the status.
func (s *stage) mustCall(status int, base, method, path, bearer, body string, headers ...string) answer {
	s.t.Helper()
	c := newCaller()
	defer c.http.CloseIdleConnections()
	c.http.Timeout = patience // a rotation may wait for the Kubernetes API
	got, err := c.call(base, method, path, bearer, body, headers...)
	if err != nil || got.status != status {
		s.t.Fatalf("%s %s: %d %v, %v; want %d", method, path, got.status, got.body, err, status)
	}
	return got
}
