//go:build faults

package faults

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/merchant-operator/merchant-operator/api/apikey"
	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/kubetest"
)

func tenantFaults() []fault {
	return []fault{
		{"P9", "another merchant's ids on every route", "404 as for unknown ids, nothing changes", tryForeignIDs},
		{"P9", "a tenant with all rights in its namespace forges keys for another's merchant", "no forged key is accepted, none is lost", tryForging},
		{"P9", "a tenant claims the digest of another's key, which is then rotated, disabled or deleted", "the claim gives no access", tryClaims},
	}
}

// routeWithID is a line of openapi.yaml that begins a path with a session in it, for callers with a key.
var routeWithID = regexp.MustCompile(`(?m)^  (/api/v1/sessions/\{sessionId\}.*):\n(?:.*\n)*?    (get|post):$`)

func tryForeignIDs(t *testing.T) (int, string) {
	t.Helper()
	document, err := os.ReadFile("../../apiserver/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	routes := routeWithID.FindAllStringSubmatch(string(document), -1)
	if len(routes) < 2 {
		t.Fatalf("routes with ids: %v", routes)
	}
	s := deploy(t, 2, 0)
	victim := s.Merchant("coffee")
	s.Merchant("books")
	own, other := s.apiKey("coffee-till", "coffee"), s.apiKey("books-till", "books", mayDoAll)
	base, c := s.replicas[0].public, newCaller()
	var ids []string
	for n := range 6 {
		id := s.mustCall(http.StatusCreated, base, http.MethodPost, sessions, own, `{"amountCents":100}`, "Idempotency-Key", fmt.Sprint("order-", n)).Text("sessionId")
		if n%2 == 0 {
			s.mustCall(http.StatusOK, base, http.MethodPost, sessions+"/"+id+"/cancel", own, "")
		}
		ids = append(ids, id)
	}
	mine := s.mustCall(http.StatusCreated, base, http.MethodPost, sessions, other, `{"amountCents":100}`).Text("sessionId")
	before := s.dumpSessions(victim)
	tried := 0
	rapid.Check(t, func(r *rapid.T) {
		route := rapid.SampledFrom(routes).Draw(r, "route")
		id := rapid.SampledFrom(ids).Draw(r, "session")
		id = rapid.SampledFrom([]string{
			id, mine[:5] + id[5:], strings.ToUpper(id), id + "%00", mine + "%2F..%2F" + id, mine + "/../" + id, "." + id, id + "%3FsessionId=" + mine,
			id[:len(id)-1] + "*",
		}).Draw(r, "shape")
		headers := []string{
			"Idempotency-Key", fmt.Sprint("order-", rapid.IntRange(0, 5).Draw(r, "order")),
			rapid.SampledFrom([]string{"X-Merchant-Id", "X-Original-URL", "X-HTTP-Method-Override", "X-Forwarded-For"}).Draw(r, "header"), ids[0],
		}
		method := strings.ToUpper(route[2])
		target := base + strings.Replace(route[1], "{sessionId}", id, 1)
		got, err := c.call(target, method, "", other, `{"amountCents":1}`, headers...)
		tried++
		if err != nil || got.Status != http.StatusNotFound || !strings.HasSuffix(got.Text("error"), " not found") {
			r.Fatalf("%s %s: %d %v, %v", method, target, got.Status, got.Body, err)
		}
	})
	if after := s.dumpSessions(victim); !maps.Equal(before, after) {
		t.Errorf("sessions changed from %v to %v", before, after)
	}
	return tried, fmt.Sprintf("%d routes, %d calls: all 404, no session changed", len(routes), tried)
}

// dumpSessions are a merchant's sessions as Redis holds them.
func (s *deployment) dumpSessions(merchant *v1alpha1.Merchant) map[string]string {
	s.t.Helper()
	found := map[string]string{}
	keys, err := s.keeper.Keys(s.t.Context(), space(merchant)+"session:*").Result()
	s.must(err)
	for _, key := range keys {
		fields, err := s.keeper.HGetAll(s.t.Context(), key).Result()
		s.must(err)
		found[key] = fmt.Sprint(fields)
	}
	return found
}

// tenant may do everything in its own namespace, where the deployment's merchants are not.
func (s *deployment) tenant() (client.Client, *deployment) {
	s.t.Helper()
	account, elsewhere := s.pipeline()
	tenant, err := client.New(account, client.Options{Scheme: shared.Client.Scheme()})
	s.must(err)
	return tenant, elsewhere
}

// pipeline signs in as a tenant's service account, which may do everything in its own namespace.
func (s *deployment) pipeline() (*rest.Config, *deployment) {
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
	user, err := shared.Environment.AddUser(envtest.User{Name: namespace.Name, Groups: []string{"system:serviceaccounts", "system:authenticated"}}, nil)
	s.must(err)
	elsewhere := *s
	elsewhere.Namespace = namespace.Name
	return user.Config(), &elsewhere
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
		if record, err := published.DecodeKey(&secret); err != nil || record.Accepts(dead.Digest(), time.Now()) {
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

// victim is an ApiKey whose key another tenant claims.
type victim struct {
	*deployment

	name, key string
}

// keyEnds are the ways to end a key.
var keyEnds = []struct {
	name string
	end  func(v victim)
}{
	{"rotated over HTTP", func(v victim) {
		shared.secret(v.mustCall(http.StatusOK, v.replicas[0].public, http.MethodPost, rotate, v.key, "").Text("fullKey"))
	}},
	{"rotated by its trigger", func(v victim) {
		v.change(func(spec *v1alpha1.ApiKeySpec) { spec.Rotation.OverlapSeconds = new(int32(0)) })
		v.trigger(v.name, "revoke")
	}},
	{"disabled", func(v victim) {
		v.change(func(spec *v1alpha1.ApiKeySpec) { spec.State = v1alpha1.ApiKeyDisabled })
	}},
	{"deleted", func(v victim) {
		apiKey := &v1alpha1.ApiKey{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.name}}
		v.must(shared.Client.Delete(v.t.Context(), apiKey))
		eventually(v.t, "the ApiKey is gone", func() bool {
			return apierrors.IsNotFound(shared.get(v.t.Context(), v.Namespace, v.name, &v1alpha1.ApiKey{}))
		})
	}},
}

// change edits the ApiKey and waits until the operator has handled it.
func (v victim) change(edit func(*v1alpha1.ApiKeySpec)) {
	v.t.Helper()
	var apiKey v1alpha1.ApiKey
	v.must(shared.get(v.t.Context(), v.Namespace, v.name, &apiKey))
	before := apiKey.DeepCopy()
	edit(&apiKey.Spec)
	v.must(shared.Client.Patch(v.t.Context(), &apiKey, client.MergeFrom(before)))
	v.observed(&apiKey)
}

// observed waits until the operator has handled the current generation of an ApiKey.
func (s *deployment) observed(apiKey *v1alpha1.ApiKey) {
	s.t.Helper()
	eventuallySees(s.t, apiKey.Name+" is observed", func() (string, bool) {
		s.must(shared.get(s.t.Context(), apiKey.Namespace, apiKey.Name, apiKey))
		return fmt.Sprintf("%+v", apiKey.Status), apiKey.Status.ObservedGeneration == apiKey.Generation
	})
}

// tryClaims has a tenant make ApiKeys whose keyDigest is that of another's key, before the key ends and after.
func tryClaims(t *testing.T) (int, string) {
	t.Helper()
	s := deploy(t, 2, 0)
	s.Merchant("coffee")
	tenant, own := s.tenant()
	own.Merchant("bait")
	tried := 0
	for _, ending := range keyEnds {
		for _, first := range []bool{true, false} {
			tried++
			v := victim{deployment: s, name: fmt.Sprint("till-", tried)}
			v.key = s.apiKey(v.name, "coffee")
			claim := func() {
				thief := &v1alpha1.ApiKey{
					ObjectMeta: metav1.ObjectMeta{Namespace: own.Namespace, Name: fmt.Sprint("claim-", tried)},
					Spec: v1alpha1.ApiKeySpec{
						MerchantRef: v1alpha1.MerchantReference{Name: "bait"}, KeyDigest: apikey.NewDigest(v.key).Hex(),
					},
				}
				s.must(tenant.Create(t.Context(), thief))
				own.observed(thief)
			}
			if first {
				claim()
				v.opens("with a claim", http.StatusOK)
			}
			ending.end(v)
			if !first {
				claim()
			}
			// What is applied now is in force after all that came before.
			own.apiKey(fmt.Sprint("later-", tried), "bait")
			v.opens(fmt.Sprintf("%s, claimed before that: %v", ending.name, first), http.StatusUnauthorized)
		}
	}
	// A digest in a spec was written by the tenant, and is no leak.
	s.must(tenant.DeleteAllOf(t.Context(), &v1alpha1.ApiKey{}, client.InNamespace(own.Namespace)))
	eventuallySees(t, "the tenant's ApiKeys are gone", func() (string, bool) {
		var left v1alpha1.ApiKeyList
		s.must(tenant.List(t.Context(), &left, client.InNamespace(own.Namespace)))
		var names []string
		for _, one := range left.Items {
			names = append(names, one.Name)
		}
		return strings.Join(names, ", "), len(names) == 0
	})
	return tried, fmt.Sprintf("%d claims to keys that were rotated, disabled or deleted, half of them before that: none gave access", tried)
}

// opens asks every replica whether the key gives access to its own merchant, or to nothing.
func (v victim) opens(when string, want int) {
	v.t.Helper()
	for _, r := range v.replicas {
		got, err := newCaller().call(r.public, http.MethodGet, me, v.key, "")
		merchant, _ := got.Body["merchant"].(map[string]any)
		if err != nil || got.Status != want || (want == http.StatusOK && merchant["name"] != "Acme coffee") {
			v.t.Errorf("%s: %s answers %s's key with %d for %v, %v; want %d", when, r.name, v.name, got.Status, merchant["name"], err, want)
		}
	}
}
