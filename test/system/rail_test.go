package system

import (
	"fmt"
	"net/http"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// railToken is of an account that may settle, made once for all tests.
var railToken = struct {
	once sync.Once
	text string
}{}

// rail returns a bearer token that may settle.
func (s scene) rail() string {
	s.t.Helper()
	railToken.once.Do(func() {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test-rail"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "merchant-operator-rail"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.namespace, Name: "rail"}},
		}
		if err := shared.kube.Create(s.t.Context(), binding); err != nil && !apierrors.IsAlreadyExists(err) {
			s.t.Fatal(err)
		}
		railToken.text = s.token("rail")
	})
	if railToken.text == "" {
		s.t.Fatal("there is no rail's token")
	}
	return railToken.text
}

// token is of a new service account in the scene's namespace.
func (s scene) token(account string) string {
	s.t.Helper()
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account}}
	if err := shared.kube.Create(s.t.Context(), object); err != nil {
		s.t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{}
	if err := shared.kube.SubResource("token").Create(s.t.Context(), object, request); err != nil {
		s.t.Fatal(err)
	}
	return request.Status.Token
}

// report is what a rail says of a payment of 12.50.
func report(ref, outcome string) string {
	return fmt.Sprintf(`{"paymentRef":%q,"outcome":%q,"amountCents":1250}`, ref, outcome)
}

// settle reports a payment to one replica's internal listener.
func (s scene) settle(replica int, token, id, body string) answer {
	s.t.Helper()
	return s.send(shared.internal[replica], http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", token, body)
}

// charge creates a session of 12.50 on one replica.
func (s scene) charge(replica int, key string) (id string) {
	s.t.Helper()
	created := s.want(s.call(replica, http.MethodPost, sessions, key, `{"amountCents":1250,"orderRef":"1001"}`), http.StatusCreated)
	return created.body["sessionId"].(string)
}

func (s scene) cancel(replica int, key, id string) answer {
	s.t.Helper()
	return s.call(replica, http.MethodPost, sessions+"/"+id+"/cancel", key, "")
}

// wantStatus asks every replica.
func (s scene) wantStatus(key, id, status string) {
	s.t.Helper()
	for replica := range shared.replicas {
		read := s.want(s.call(replica, http.MethodGet, sessions+"/"+id, key, ""), http.StatusOK)
		if read.body["status"] != status {
			s.t.Errorf("replica %d: status %v, want %s", replica, read.body["status"], status)
		}
	}
}
