package console

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goredis "github.com/redis/go-redis/v9"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/cli"
	"github.com/merchant-operator/merchant-operator/test/fixture"
	"github.com/merchant-operator/merchant-operator/test/storetest"
)

// noon is a time zone in which it is noon, so that the day of the shop does not end during the test.
func noon() v1alpha1.TimeZone {
	return v1alpha1.TimeZone(fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12))
}

// A bookkeeper downloads a day, with the console or with the plugin: both have the same lines, whose net is what came in that day less what went
// back that day, of an earlier day's payment too.
func TestPayments_ConsoleAndPluginAgree(t *testing.T) {
	s := newShop(t)
	zone := noon()
	s.Change(s.merchant, func() { s.merchant.Spec.TimeZone = zone })
	_, key := s.ApiKey("till", "acme")
	rail := s.RailToken()
	s.Eventually("the key works", func() bool { return s.status(key) == http.StatusCreated })
	s.Eventually("the API and the console know the time zone", func() bool {
		me, err := fixture.Call(http.DefaultClient, api.Public, http.MethodGet, fixture.Me, key, "")
		return err == nil && strings.Contains(string(me.Raw), string(zone)) && s.alice.Get(t, s.page+"/payments.csv").Status == http.StatusOK
	})
	call := func(base, path, token, body string) fixture.Answer {
		t.Helper()
		answer, err := fixture.Call(http.DefaultClient, base, http.MethodPost, path, token, body)
		if err != nil || answer.Status >= http.StatusBadRequest {
			t.Fatalf("%s: %d %s, %v", path, answer.Status, answer.Raw, err)
		}
		return answer
	}
	charge := func(cents int) (id string) {
		return call(api.Public, fixture.Sessions, key, fmt.Sprintf(`{"amountCents":%d,"orderRef":"=order%d"}`, cents, cents)).Text("sessionId")
	}
	report := func(id, ref, outcome string, cents int) {
		call(api.Internal, "/internal/v1/sessions/"+id+"/settlement", rail, fmt.Sprintf(`{"paymentRef":%q,"outcome":%q,"amountCents":%d}`, ref, outcome, cents))
	}
	refund := func(id, ref, paymentRef string, cents int) {
		call(api.Internal, "/internal/v1/sessions/"+id+"/refunds", rail, fmt.Sprintf(`{"paymentRef":%q,"refundRef":%q,"amountCents":%d}`, paymentRef, ref, cents))
	}

	earlier := charge(5000)
	report(earlier, "card-0", "COMPLETED", 5000)
	s.dayBefore()
	refund(earlier, "back-0", "card-0", 4000)
	paid := charge(1250)
	report(paid, "card-1", "COMPLETED", 1250)
	report(paid, "card-2", "COMPLETED", 1250) // twice
	report(charge(700), "card-3", "FAILED", 700)
	call(api.Public, fixture.Sessions+"/"+charge(9)+"/cancel", key, "")
	refund(paid, "=back-1", "card-1", 500)
	refund(paid, "-back-2", "card-2", 1250)

	for day, want := range map[string]struct{ lines, net int }{"today": {7, 1250 + 1250 - 4000 - 500 - 1250}, "yesterday": {1, 5000}} {
		t.Run(day, func(t *testing.T) {
			console := s.alice.Get(t, s.page+"/payments.csv?day="+day)
			plugin := s.export(t, day)
			if diff := cmp.Diff(sortedLines(console.Text), sortedLines(plugin)); diff != "" || console.Status != http.StatusOK {
				t.Errorf("%d, other lines (-console +plugin):\n%s", console.Status, diff)
			}
			rows, err := csv.NewReader(strings.NewReader(plugin)).ReadAll()
			if err != nil || len(rows) != want.lines+1 {
				t.Fatalf("%d rows, %v:\n%s", len(rows), err, plugin)
			}
			net := 0
			for _, row := range rows[1:] {
				cents, err := strconv.Atoi(strings.Replace(row[17], ".", "", 1))
				if err != nil {
					t.Error(err)
				}
				net += cents
			}
			if net != want.net {
				t.Errorf("the net is %d, want %d:\n%s", net, want.net, plugin)
			}
		})
	}
}

// export runs the plugin with all rights.
func (s shop) export(t *testing.T, day string) string {
	t.Helper()
	var out, problems bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &problems}
	code := cli.Execute(t.Context(), "v1.2.3", streams, []string{
		"payments", "export", "acme", "--day", day, "--api-url", api.Public, "--kubeconfig", filepath.Join(shared.Dir, "admin.kubeconfig"), "-n", s.Namespace,
	})
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, &problems)
	}
	return out.String()
}

// sortedLines are the lines of a file: those of the same millisecond have no order.
func sortedLines(file string) []string {
	lines := strings.Split(file, "\r\n")
	slices.Sort(lines)
	return lines
}

// dayBefore moves all that has happened to the merchant to the day before.
func (s shop) dayBefore() {
	s.T.Helper()
	redis, ctx := storetest.Inspect(s.T, shared.Redis), s.T.Context()
	feeds := redis.Keys(ctx, "*:feed:"+published.ID(s.merchant.UID)).Val()
	if len(feeds) != 1 {
		s.T.Fatalf("%d feeds: %v", len(feeds), feeds)
	}
	entries := redis.XRange(ctx, feeds[0], "-", "+").Val()
	if err := redis.Del(ctx, feeds[0]).Err(); err != nil || len(entries) == 0 {
		s.T.Fatal(err, entries)
	}
	for _, entry := range entries {
		milliseconds, sequence, _ := strings.Cut(entry.ID, "-")
		at, err := strconv.ParseInt(milliseconds, 10, 64)
		if err == nil {
			id := strconv.FormatInt(at-(24*time.Hour).Milliseconds(), 10) + "-" + sequence
			err = redis.XAdd(ctx, &goredis.XAddArgs{Stream: feeds[0], ID: id, Values: entry.Values}).Err()
		}
		if err != nil {
			s.T.Fatal(err)
		}
	}
}
