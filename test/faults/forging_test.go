//go:build faults

package faults

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

// tenant may do everything in its own namespace, where the deployment's merchants are not.
func (s *deployment) tenant() (client.Client, *deployment) {
	s.t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tenant-"}}
	s.must(shared.Client.Create(s.t.Context(), namespace))
	all := []string{"*"}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "all"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: all, Resources: all, Verbs: all}},
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "all"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "all"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: namespace.Name}},
	}
	s.must(shared.Client.Create(s.t.Context(), role))
	s.must(shared.Client.Create(s.t.Context(), binding))
	user, err := shared.Environment.AddUser(envtest.User{Name: namespace.Name}, nil)
	s.must(err)
	tenant, err := client.New(user.Config(), client.Options{Scheme: shared.Client.Scheme()})
	s.must(err)
	elsewhere := *s
	elsewhere.Namespace = namespace.Name
	return tenant, &elsewhere
}

func tryForging(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 1, 0)
	victim := s.Merchant("coffee")
	key := s.apiKey("till", "coffee")
	var target v1alpha1.ApiKey
	s.must(shared.get(t.Context(), s.Namespace, "till", &target))
	tenant, own := s.tenant()
	ctx := t.Context()

	// A published key for the victim's merchant, in the tenant's namespace and where the data plane looks.
	forged, err := apikey.New(published.ID("forged"))
	s.must(err)
	for _, namespace := range []string{own.Namespace, kubetest.CredentialsNamespace} {
		secret, err := published.EncodeKey(namespace, published.KeyRecord{
			KeyID: published.ID("forged"), MerchantID: published.ID(victim.UID), Generation: 1, Revision: 1,
			Source:       published.Source{Namespace: own.Namespace, Name: "forged", UID: "forged"},
			Current:      published.Current{Digest: forged.Digest(), Prefix: forged.Prefix(), CreatedAt: time.Now().Truncate(time.Second)},
			State:        v1alpha1.ApiKeyActive,
			LastRotation: published.RotationEvent{Time: time.Now().Truncate(time.Second), Cause: v1alpha1.RotationInitial},
		})
		s.must(err)
		if err := tenant.Create(ctx, secret); namespace == kubetest.CredentialsNamespace && !apierrors.IsForbidden(err) {
			t.Errorf("a tenant wrote into the credentials namespace: %v", err)
		} else if namespace == own.Namespace {
			s.must(err)
		}
	}
	var secrets corev1.SecretList
	if err := tenant.List(ctx, &secrets, client.InNamespace(kubetest.CredentialsNamespace)); !apierrors.IsForbidden(err) {
		t.Errorf("a tenant listed the credentials namespace: %v", err)
	}

	// A key for a Merchant of another namespace, by its name.
	foreign := &v1alpha1.ApiKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: "foreign"},
		Spec: v1alpha1.ApiKeySpec{
			MerchantRef: v1alpha1.MerchantReference{Name: "coffee"}, Delivery: &v1alpha1.Delivery{SecretName: "foreign-key"},
		},
	}
	s.must(tenant.Create(ctx, foreign))

	// A key of its own whose status claims to be the victim's, deleted so that what it claims is cleaned up.
	own.Merchant("bait")
	own.apiKey("claims", "bait")
	var claims v1alpha1.ApiKey
	s.must(tenant.Get(ctx, client.ObjectKey{Namespace: own.Namespace, Name: "claims"}, &claims))
	before := claims.DeepCopy()
	claims.Status.KeyID, claims.Status.Prefix = target.Status.KeyID, target.Status.Prefix
	s.must(tenant.Status().Patch(ctx, &claims, client.MergeFrom(before)))
	s.must(tenant.Delete(ctx, &claims))
	eventually(t, "the claiming key is gone", func() bool {
		return apierrors.IsNotFound(shared.get(ctx, own.Namespace, "claims", &claims))
	})

	// A delivery onto a Secret that somebody else relies on.
	precious := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: "precious"}, StringData: map[string]string{"apiKey": "mine"}}
	s.must(tenant.Create(ctx, precious))
	thief := foreign.DeepCopy()
	thief.ObjectMeta = metav1.ObjectMeta{Namespace: own.Namespace, Name: "thief"}
	thief.Spec.MerchantRef.Name, thief.Spec.Delivery.SecretName = "bait", "precious"
	s.must(tenant.Create(ctx, thief))
	eventually(t, "the thief is stalled", func() bool {
		s.must(shared.get(ctx, own.Namespace, "thief", thief))
		return meta.IsStatusConditionTrue(thief.Status.Conditions, v1alpha1.StalledCondition)
	})
	s.must(shared.get(ctx, own.Namespace, "precious", precious))
	if string(precious.Data["apiKey"]) != "mine" {
		t.Error("a delivery overwrote a Secret")
	}

	// What is applied now is in force after all that came before.
	own.apiKey("sentinel", "bait")
	s.must(shared.get(ctx, own.Namespace, "foreign", foreign))
	var none corev1.Secret
	if meta.IsStatusConditionTrue(foreign.Status.Conditions, v1alpha1.ReadyCondition) ||
		!apierrors.IsNotFound(shared.get(ctx, own.Namespace, "foreign-key", &none)) {
		t.Error("a key for another namespace's Merchant was issued")
	}
	s.mustCall(http.StatusUnauthorized, s.replicas[0].public, http.MethodGet, me, forged.Reveal(), "")

	// A key of its own whose status names the victim's, rotated in the console by a person of the tenant.
	c := own.openConsole()
	shared.secret(c.issue("decoy").Key())
	var decoy v1alpha1.ApiKey
	eventually(t, "the status of the decoy is written", func() bool {
		return shared.get(ctx, own.Namespace, "decoy", &decoy) == nil && decoy.Status.KeyGeneration == 2
	})
	before = decoy.DeepCopy()
	decoy.Status.KeyID, decoy.Status.Prefix, decoy.Status.KeyGeneration = target.Status.KeyID, target.Status.Prefix, target.Status.KeyGeneration
	s.must(tenant.Status().Patch(ctx, &decoy, client.MergeFrom(before)))
	for _, generation := range []string{"1", "2"} { // the victim's, the decoy's
		if got := c.rotate("decoy", generation).Key(); got != "" {
			if parsed, err := apikey.Parse(shared.secret(got)); err != nil || parsed.ID() != published.ID(decoy.UID) {
				t.Errorf("the console shows a key with the id %s", parsed.ID())
			}
		}
	}
	s.mustCall(http.StatusOK, s.replicas[0].public, http.MethodGet, me, key, "")

	// A dead key of its own, put where an interrupted rotation would have left the next one.
	leaked := own.apiKey("replanted", "bait")
	replanted := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: "replanted"}}
	planted := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: "replanted-key"}}
	patch := func(object client.Object, format string, args ...any) {
		t.Helper()
		s.must(tenant.Patch(ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))))
	}
	patch(replanted, `{"spec":{"rotation":{"trigger":"leaked","overlapSeconds":0}}}`)
	dead, err := apikey.Parse(leaked)
	s.must(err)
	for generation := int64(2); generation <= 5; generation++ {
		eventually(t, "the key is rotated", func() bool {
			return shared.get(ctx, own.Namespace, "replanted", replanted) == nil && replanted.Status.KeyGeneration == generation
		})
		var secret corev1.Secret
		s.must(shared.get(ctx, kubetest.CredentialsNamespace, published.KeyName(dead.ID()), &secret))
		if record, err := published.DecodeKey(&secret); err != nil || record.Live(dead.Digest(), time.Now()) {
			t.Errorf("generation %d of a key is a dead one (%v)", generation, err)
		}
		patch(planted, `{"metadata":{"annotations":{"merchant-operator.io/generation":"%d"}},"stringData":{"apiKey":%q}}`, generation+1, leaked)
		patch(replanted, `{"spec":{"rotation":{"trigger":"routine %d"}}}`, generation)
	}
	s.refusedBy(s.replicas[0], leaked, http.StatusUnauthorized)

	// A key in its overlap that rotates without end.
	issuer := shared.secret(s.IssuerToken())
	path, body := fixture.RotateByID(&target, 1, 3600)
	shared.secret(s.mustCall(http.StatusOK, s.replicas[0].internal, http.MethodPost, path, issuer, body).Text("fullKey"))
	for range 150 {
		s.mustCall(http.StatusUnauthorized, s.replicas[0].public, http.MethodPost, fixture.Rotate, key, "")
	}
	path, body = fixture.RotateByID(&target, 2, 3600)
	current := shared.secret(s.mustCall(http.StatusOK, s.replicas[0].internal, http.MethodPost, path, issuer, body).Text("fullKey"))
	s.mustCall(http.StatusOK, s.replicas[0].public, http.MethodPost, fixture.Rotate, current, "")
	const tried = 9
	return tried, fmt.Sprintf("%d ways: the forged key got 401, the victim's went on", tried)
}
