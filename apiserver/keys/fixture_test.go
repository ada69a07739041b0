package keys_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubernetestesting "k8s.io/client-go/testing"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/keys"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/test/openapitest"
	"github.com/merchant-operator/merchant-operator/test/redistest"
	"github.com/merchant-operator/merchant-operator/test/roomtest"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

var sharedRedis *redistest.Server

func TestMain(m *testing.M) {
	redistest.Main(m, func(server *redistest.Server) { sharedRedis = server })
}

// console is the account that asks.
const console = "system:serviceaccount:console:console"

// fixture is what the console reads in the room of keys of one replica. What rotates keys compares
// and swaps Secrets, so it is tested on a kube-apiserver.
type fixture struct {
	*roomtest.Replica

	t       *testing.T
	secrets *fake.Clientset
	reads   atomic.Int64 // of Secrets
	unknown atomic.Int64 // of them of unknownMerchant
}

const unknownMerchant = "aaaaaaaaaaaa"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{Replica: roomtest.New(t, sharedRedis.URL()), t: t, secrets: fake.NewClientset()}
	f.secrets.PrependReactor("get", "secrets", func(action kubernetestesting.Action) (bool, runtime.Object, error) {
		f.reads.Add(1)
		if get, ok := action.(kubernetestesting.GetAction); ok && get.GetName() == published.WebhookName(unknownMerchant) {
			f.unknown.Add(1)
		}
		return false, nil, nil
	})
	h := keys.New(keys.Options{
		Published: keys.Published{Secrets: f.secrets.CoreV1().Secrets("credentials")}, Admitter: f.Admitter, Overrides: f.Keys, Directory: f.Directory,
		Log: f.Log, Registerer: f.Registry, Now: time.Now,
	})
	f.Serve(openapitest.Internal, web.Routes{
		rotation.AcceptedPath: {http.MethodGet: roomtest.AsAccount(h.ListAccepted)},
		rotation.SigningPath:  {http.MethodPost: roomtest.AsAccount(h.ShowSigningSecret)},
	})
	return f
}

// merchant publishes a merchant whose Merchant has this UID.
func (f *fixture) merchant(uid types.UID, change ...func(*published.MerchantRecord)) published.MerchantRecord {
	f.t.Helper()
	merchant := roomtest.NewMerchant(uid, string(uid), change...)
	f.PublishMerchant(merchant)
	return merchant
}

// key publishes a key whose ApiKey has this UID.
func (f *fixture) key(uid types.UID, merchantID string, change ...func(*published.KeyRecord)) (plaintext string, issued published.KeyRecord) {
	f.t.Helper()
	key, issued := roomtest.NewKey(f.t, uid, string(uid), merchantID, change...)
	f.PublishKey(issued)
	return key.Reveal(), issued
}

// publishSecret publishes a signing secret that a trigger has made, as the operator does.
func (f *fixture) publishSecret(merchant published.MerchantRecord, change ...func(*published.WebhookRecord)) published.WebhookRecord {
	f.t.Helper()
	now := time.Now()
	record := published.WebhookRecord{
		Version: 1, MerchantID: merchant.MerchantID,
		Source:         published.Source{Namespace: merchant.Namespace, Name: merchant.Name, UID: types.UID(merchant.Name)},
		Current:        published.IssuedSecret{Secret: published.NewSigningSecret(), CreatedAt: now},
		Retired:        []published.RetiredSecret{{Secret: published.NewSigningSecret(), ValidUntil: now.Add(time.Hour).Truncate(time.Second)}},
		HandledTrigger: rotation.SigningTrigger(nonce),
	}
	for _, c := range change {
		c(&record)
	}
	secret, err := published.EncodeWebhook("credentials", record)
	storetest.Must(f.t, err)
	_, err = f.secrets.CoreV1().Secrets("credentials").Create(f.t.Context(), secret, metav1.CreateOptions{})
	storetest.Must(f.t, err)
	return record
}

// deleted publishes what the operator publishes when an ApiKey is deleted, before it deletes the Secret.
func (f *fixture) deleted(issued published.KeyRecord) {
	f.t.Helper()
	tombstone, err := published.EncodeTombstone("credentials", published.Tombstone{
		Kind: published.TombstoneApiKey, ID: issued.KeyID, Source: issued.Source, EndedAt: time.Now().UTC(),
	})
	storetest.Must(f.t, err)
	storetest.Must(f.t, f.Directory.Informer("tombstone").Add(tombstone))
}

func suspended(m *published.MerchantRecord) { m.State = v1alpha1.MerchantSuspended }
