package cli

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli/terminal"
	"github.com/merchant-operator/merchant-operator/internal/payments"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// sale is a merchant with a till, a rail and the whole product.
type sale struct {
	tenant

	key, rail string
}

func newSale(t *testing.T, change ...func(*v1alpha1.Merchant)) sale {
	t.Helper()
	s := sale{tenant: newTenant(t)}
	s.Merchant("acme", change...)
	_, s.key = s.ApiKey("till", "acme")
	s.rail = s.RailToken()
	eventuallyMe(t, s.tenant, s.key, http.StatusOK)
	return s
}

func (s sale) create(order string, cents int) (id string) {
	s.T.Helper()
	created, err := fixture.Call(fixture.Insecure, replica.Public, http.MethodPost, fixture.Sessions, s.key, fmt.Sprintf(`{"amountCents":%d,"orderRef":%q}`, cents, order))
	if err != nil || created.Status != http.StatusCreated {
		s.T.Fatalf("%d %s, %v", created.Status, created.Raw, err)
	}
	return created.Text("sessionId")
}

// settle reports the end of a session by the rail.
func (s sale) settle(id, outcome string, cents int) {
	s.T.Helper()
	body := fmt.Sprintf(`{"paymentRef":"card-%s","outcome":%q,"amountCents":%d}`, id, outcome, cents)
	answer, err := fixture.Call(fixture.Insecure, replica.Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/settlement", s.rail, body)
	if err != nil || answer.Status != http.StatusOK {
		s.T.Fatalf("%d %s, %v", answer.Status, answer.Raw, err)
	}
}

// Payments and events need a key that may list, and one payment a key that may read: the first key of the shop cannot do that.
func TestPayments_KeyWithThePermission(t *testing.T) {
	t.Parallel()
	s := newSale(t)
	change := func(name string, permissions ...v1alpha1.Permission) {
		key := s.apiKey(name)
		key.Spec.Permissions = permissions
		if err := installation.Client.Update(t.Context(), &key); err != nil {
			t.Fatal(err)
		}
	}
	id := s.create("1001", 5)
	change("till", v1alpha1.TillPermissions()...)
	run(t, s.Namespace, "payments list acme").want(t, terminal.ExitError, "no Live key of "+s.Namespace+"/acme has the permissions read,list; till cannot be used",
		"keys issue acme-office --merchant acme --mode Live --permissions read,list")
	run(t, s.Namespace, "payments export acme").want(t, terminal.ExitError, "has the permissions read,list")
	run(t, s.Namespace, "listen acme").want(t, terminal.ExitError, "has the permissions read,list")
	run(t, s.Namespace, "payments list acme --key till").want(t, terminal.ExitError, "ApiKey "+s.Namespace+"/till does not have the permission list")
	run(t, s.Namespace, "payments list acme --order 1001").want(t, terminal.ExitDone, id)
	run(t, s.Namespace, "payments show "+id).want(t, terminal.ExitDone, "PENDING")
	s.Eventually("the API has seen it", func() bool {
		answer, err := fixture.Call(fixture.Insecure, replica.Public, http.MethodGet, "/api/v1/events", s.key, "")
		return err == nil && answer.Status == http.StatusForbidden
	})
	runAs(t, "/nowhere", "default", s.key, "payments", "list", "--key-stdin").want(t, terminal.ExitError, "does not have the permission list", "--permissions read,list makes one")
	change("till", v1alpha1.PermissionCreate)
	run(t, s.Namespace, "payments show "+id).want(t, terminal.ExitError, "has the permissions read; till cannot be used")

	_, office := s.ApiKey("zz-office", "acme", func(k *v1alpha1.ApiKey) { k.Spec.Permissions = []v1alpha1.Permission{"read", "list"} })
	eventuallyMe(t, s.tenant, office, http.StatusOK)
	run(t, s.Namespace, "payments list acme").want(t, terminal.ExitDone)
	run(t, s.Namespace, "payments show "+id).want(t, terminal.ExitDone, "PENDING")
}

// A refund from the request to the rail's confirmation, with the one key that may ask for it. Nobody can do so by default.
func TestPayments_Refund(t *testing.T) {
	t.Parallel()
	s := newSale(t)
	id := s.create("1001", 1250)
	s.settle(id, "COMPLETED", 1250)
	run(t, s.Namespace, "payments refund "+id).want(t, terminal.ExitError, "has the permissions read,refund; till cannot be used",
		"keys issue acme-refunds --merchant acme --mode Live --permissions read,refund -n "+s.Namespace)
	run(t, s.Namespace, "payments refund "+id+" --key till").want(t, terminal.ExitError, "does not have the permission refund")
	runAs(t, "/nowhere", "default", s.key, "payments", "refund", id, "--key-stdin").want(t, terminal.ExitError, "403", "--permissions read,refund")
	_, office := s.ApiKey("zz-refunds", "acme", func(k *v1alpha1.ApiKey) { k.Spec.Permissions = []v1alpha1.Permission{"read", "refund"} })
	eventuallyMe(t, s.tenant, office, http.StatusOK)

	run(t, s.Namespace, "payments refund "+id+" --amount 13").want(t, terminal.ExitError, "payments show "+id)
	const partly = " --amount 5.00 --reason cold --idempotency-key return-1"
	run(t, s.Namespace, "payments refund "+id+partly).want(t, terminal.ExitDone, "REQUESTED", "5.00 USD", "Idempotency-Key: return-1")
	run(t, s.Namespace, "payments refund "+id+partly).want(t, terminal.ExitDone, "It was asked for before.", "REQUESTED")
	run(t, s.Namespace, "payments refund "+id).want(t, terminal.ExitDone, "REQUESTED", "7.50 USD")
	run(t, s.Namespace, "payments refund "+id).want(t, terminal.ExitError, "409")
	shown := run(t, s.Namespace, "payments show "+id).want(t, terminal.ExitDone).out
	if strings.Count(shown, "Asked for") != 2 || !strings.Contains(shown, "REQUESTED; cold") {
		t.Errorf("it shows %s", shown)
	}
	owed, err := fixture.Call(fixture.Insecure, replica.Internal, http.MethodGet, "/internal/v1/refunds", s.rail, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range owed.Body["refunds"].([]any) {
		row := row.(map[string]any)
		body := fmt.Sprintf(`{"paymentRef":%q,"refundRef":%q,"amountCents":%v}`, row["paymentRef"], row["refundRef"], row["amountCents"])
		if answer, err := fixture.Call(fixture.Insecure, replica.Internal, http.MethodPost, "/internal/v1/sessions/"+id+"/refunds", s.rail, body); err != nil || answer.Status != http.StatusOK {
			t.Fatalf("%d %s, %v", answer.Status, answer.Raw, err)
		}
	}
	if shown := run(t, s.Namespace, "payments show "+id).out; strings.Count(shown, "CONFIRMED") != 2 || strings.Count(shown, "Refunded") != 2 {
		t.Errorf("it shows %s", shown)
	}
}

// The day of a shop, from the real API: each end once, sums to the cent, with the key from the Secret.
func TestPayments_RealDay(t *testing.T) {
	t.Parallel()
	s := newSale(t, func(m *v1alpha1.Merchant) { m.Spec.Currency, m.Spec.TimeZone = "EUR", "Pacific/Kiritimati" })
	want := map[string]string{}
	total := 0
	const paid = 130 // more than a page
	for n := range paid {
		id := s.create(fmt.Sprint("=order", n), 1000+n)
		s.settle(id, "COMPLETED", 1000+n)
		want[id], total = "COMPLETED", total+1000+n
	}
	for range 3 {
		id := s.create("lost", 5)
		s.settle(id, "FAILED", 5)
		want[id] = "FAILED"
	}
	pending := s.create("lost", 5)

	got := run(t, s.Namespace, "payments export acme").want(t, terminal.ExitDone, "is not over in Pacific/Kiritimati",
		fmt.Sprintf("COMPLETED   %d.%02d EUR   %d sessions", total/100, total%100, paid), "FAILED      0.15 EUR      3 sessions")
	rows, err := csv.NewReader(strings.NewReader(got.out)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	exported := map[string]string{}
	for _, row := range rows[1:] {
		exported[row[0]] = row[1]
	}
	if diff := cmp.Diff(want, exported); diff != "" || len(rows) != len(want)+1 {
		t.Errorf("%d rows (-want +got):\n%s", len(rows), diff)
	}
	if last := rows[len(rows)-1]; last[15] != "till" {
		t.Errorf("the oldest row is of the key %q", last[15])
	} else if last[2] != "1000" || last[3] != "EUR" || last[4] != "10.00" || last[7] != "'=order0" {
		t.Errorf("the oldest row is %v", last)
	}

	run(t, s.Namespace, "payments list acme --status FAILED --limit 1").want(t, terminal.ExitDone, "… and 2 more", "FAILED   0.15 EUR   3 sessions")
	run(t, s.Namespace, "payments list acme --day yesterday").want(t, terminal.ExitDone, "No payments on ")
	var order struct {
		Payments []payments.Payment `json:"payments"`
	}
	listed := run(t, s.Namespace, "payments list acme --order lost -o json").want(t, terminal.ExitDone).out
	if err := json.Unmarshal([]byte(listed), &order); err != nil || len(order.Payments) != 4 || order.Payments[0].SessionID != pending || strings.Contains(listed, "qrPayload") {
		t.Errorf("%+v: %v", order, err)
	}
	run(t, s.Namespace, "payments list acme --order nowhere").want(t, terminal.ExitDone, `No session has the orderRef "nowhere".`)
	receipt := run(t, s.Namespace, "payments list acme --order =order7 -o json").want(t, terminal.ExitDone).out
	if err := json.Unmarshal([]byte(receipt), &order); err != nil || len(order.Payments) != 1 || order.Payments[0].Reference == "" {
		t.Fatalf("%s: %v", receipt, err)
	}
	sold := order.Payments[0]
	var found struct {
		Payments []payments.Payment `json:"payments"`
	}
	listed = run(t, s.Namespace, "payments list acme -o json --reference "+strings.ToLower(sold.Reference)).want(t, terminal.ExitDone).out
	if err := json.Unmarshal([]byte(listed), &found); err != nil || cmp.Diff([]payments.Payment{sold}, found.Payments) != "" {
		t.Errorf("by the reference %s: %s, %v", sold.Reference, listed, err)
	}
	run(t, s.Namespace, "payments list acme --reference "+sold.Reference).want(t, terminal.ExitDone, sold.SessionID, "=order7")
	old := session.NewReference(session.NewID("abcdefgh2345", false), time.Now().AddDate(0, 0, -8)).String()
	run(t, s.Namespace, "payments list acme --reference "+old).want(t, terminal.ExitError, "the receipt with the reference \""+old+"\" may be older than what can be searched")
	other := session.NewReference(session.NewID("abcdefgh2345", false), time.Now().Add(-time.Hour)).String()
	run(t, s.Namespace, "payments list acme --reference "+other).want(t, terminal.ExitDone, `No receipt has the reference "`+other+`".`)
	run(t, s.Namespace, "payments show "+pending).want(t, terminal.ExitDone, "PENDING", "0.05 EUR", "lost", "till", "Pacific/Kiritimati")
	run(t, s.Namespace, "payments show ps_"+pending[3:15]+"000000000000000000").want(t, terminal.ExitError, "Acme acme has no session")
	run(t, s.Namespace, "payments show "+someSession).want(t, terminal.ExitError, "belongs to no Merchant in namespace "+s.Namespace)
	run(t, s.Namespace, "payments list acne").want(t, terminal.ExitError, "Do you mean acme?")
	run(t, s.Namespace, "payments list acme --mode Test").want(t, terminal.ExitError, "no working Test key of "+s.Namespace+"/acme is in a Secret")
	run(t, s.Namespace, "payments list acme --key nobody").want(t, terminal.ExitError, "there is no ApiKey nobody")

	// A till has a key, and no kubeconfig.
	piped := runAs(t, "/nowhere", "default", s.key+"\n", "payments", "list", "--key-stdin", "--status", "FAILED").want(t, terminal.ExitDone, "0.15 EUR")
	if text := piped.out + piped.problems + got.problems; strings.Contains(text, s.key) {
		t.Error("the key is printed")
	}
	wrong := newForeignKey(t, "nobody")
	refused := runAs(t, "/nowhere", "default", wrong, "payments", "list", "--key-stdin").want(t, terminal.ExitError, "401", "explain-401")
	if strings.Contains(refused.problems, wrong) {
		t.Error("the key is printed")
	}
}
