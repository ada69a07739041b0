// Package console is `bench console`: how soon has a person with 1,000 merchants in 100 namespaces a page of the console?
package console

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/rotation"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/internal/outbox"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/redis"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
	"github.com/merchant-operator/merchant-operator/internal/store/admission"
	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
	"github.com/merchant-operator/merchant-operator/test/bench/report"
)

const (
	namespaces, perNamespace = 100, 10
	newcomers                = 20
	host                     = "bench" // of the console, as load.Request says it
	payingShop               = "shops-7"
	paymentsPerDay           = 100_000 // of merchant-3 in payingShop, today and yesterday
)

// Command is `bench console`.
func Command() *cobra.Command {
	var options fixture.Options
	command := &cobra.Command{
		Use:   "console",
		Short: "Measure pages of the console, for a person who may see 1,000 merchants by the RoleBindings of 100 namespaces",
		RunE:  options.Run(func(ctx context.Context, f *fixture.Fixture, out io.Writer) { (&bench{Fixture: f}).run(ctx, out) }),
	}
	options.AddFlags(command.Flags(), "bin/bench-console.json")
	options.AddRounds(command.Flags(), 3, 3)
	return command
}

type bench struct {
	*fixture.Fixture

	redis   *fixture.Redis
	console *fixture.Process
}

func (b *bench) run(ctx context.Context, out io.Writer) {
	b.Progress("creating %d merchants", namespaces*perNamespace)
	fixture.Check(v1alpha1.AddToScheme(scheme.Scheme))
	kube := fixture.Must(client.New(b.Config, client.Options{Scheme: scheme.Scheme}))
	fixture.Check(fixture.Each(ctx, 16, namespaces, func(ctx context.Context, i int) error { return fill(ctx, kube, fmt.Sprintf("shops-%d", i)) }))
	b.redis = b.StartRedis(ctx)
	address := fixture.FreeAddress()
	issuer := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // nothing is published
		fixture.Check(json.NewEncoder(w).Encode(rotation.Accepted{}))
	}))
	defer issuer.Close()
	authority := filepath.Join(b.Directory, "internal-ca.crt")
	fixture.Check(os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw}), 0o600))
	b.console = b.StartRole(ctx, "console", b.Kubeconfig, "", "--redis-url", b.redis.URL(), "--console-address", address, "--external-url", "https://"+host,
		"--internal-url", issuer.URL, "--internal-ca-file", authority, "--oidc-issuer-url", "https://"+host, "--oidc-client-id", host, "--address-rate", "1000000", "--address-burst", "1000000")
	b.console.Address = address
	b.console.AwaitReady(ctx)
	b.Progress("recording %d payments", 2*paymentsPerDay)
	b.pay(ctx, kube)
	list := b.list(ctx, address)
	floor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(list)))
		_, _ = io.WriteString(w, list)
	}))
	defer floor.Close()

	samples, ratios := map[string][]fixture.Sample{}, report.Ratios{}
	for round := range b.Rounds {
		b.Progress("round %d of %d", round+1, b.Rounds)
		schedule := load.Schedule{Connections: 1, WarmUp: time.Second, Duration: b.Length()}
		for name, path := range map[string]string{"list": "/", "search": "/?q=coffee+7", "merchant": merchantPath, "payments": merchantPath + "/payments"} {
			took, _ := b.console.Measure(ctx, b.target(ctx, address, path, 0), schedule)
			samples[name] = append(samples[name], took)
		}
		bare := b.target(ctx, floor.Listener.Addr().String(), "/", 0)
		took := fixture.Must(load.Run(ctx, bare, schedule))
		samples["floor"] = append(samples["floor"], fixture.Sample{P50: took.P50, P99: took.P99})
		first := make([]time.Duration, newcomers)
		for i := range first {
			target, started := b.target(ctx, address, "/", 1+round*newcomers+i), time.Now()
			fixture.Check(load.Times(ctx, target, 1))
			first[i] = time.Since(started)
		}
		slices.Sort(first)
		samples["first_list"] = append(samples["first_list"], fixture.Sample{P50: first[newcomers/2], P99: first[newcomers-1]})
	}
	for name, rounds := range samples {
		medians := report.Medians(rounds)
		ratios["console_"+name+"_p50_ms"], ratios["console_"+name+"_p99_ms"] = medians.P50.Seconds()*1e3, medians.P99.Seconds()*1e3
		if medians.CPUMicros > 0 {
			ratios["console_"+name+"_cpu_us"] = medians.CPUMicros
		}
	}
	b.measureExport(ctx, address, ratios)
	report.Compare(ratios, "console_list_vs_floor", samples["list"], samples["floor"], func(s fixture.Sample) float64 { return s.P50.Seconds() })
	fmt.Fprintf(out, "\n%s\n\n%d merchants in %d namespaces; the list has %d bytes\n", report.DescribeMachine(), namespaces*perNamespace, namespaces, len(list))
	ratios.Print(out)
	fixture.Check(report.Save(b.Output, map[string]any{"samples": samples, "ratios": ratios}))
}

const merchantPath = "/merchants/" + payingShop + "/merchant-3"

// pay fills the feed of a merchant with copies of one payment, as if they had come evenly over yesterday and today.
func (b *bench) pay(ctx context.Context, kube client.Client) {
	var merchant v1alpha1.Merchant
	fixture.Check(kube.Get(ctx, client.ObjectKey{Namespace: payingShop, Name: "merchant-3"}, &merchant))
	id := published.ID(merchant.UID)
	connection := fixture.Must(redis.Open(redis.Options{URL: b.redis.URL(), Timeout: time.Minute}))
	defer func() { _ = connection.Close() }()
	sessions := fixture.Must(store.New(connection, store.Options{}))
	_, created, err := sessions.CreateSession(ctx, admission.Request{MerchantID: id, KeyID: "till", Accepted: true, Limit: ratelimit.Policy{RequestsPerSecond: 1, Burst: 1}},
		store.NewSession{MerchantName: "Coffee", Currency: "EUR", Charge: session.Charge{AmountCents: 1250, OrderRef: "table 7"}, Lifetime: time.Hour})
	fixture.Check(err)
	fixture.Must(sessions.Settle(ctx, created.Session.ID, session.Payment{Ref: "card-1001", Outcome: session.Completed, AmountCents: 1250}))
	feedKey := redis.BucketKeyspace(session.MerchantBucket(id)).Key(outbox.FeedKey, id)
	entry := fixture.Must(b.redis.XRange(ctx, feedKey, "-", "+").Result())[0]
	fixture.Check(b.redis.Del(ctx, feedKey).Err())

	today, now := time.Now().UTC().Truncate(24*time.Hour), time.Now()
	const batch = 1000
	for _, day := range []struct{ from, to time.Time }{{today.Add(-24 * time.Hour), today}, {today, now}} {
		for written := 0; written < paymentsPerDay; {
			_, err := b.redis.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
				for range batch {
					at := day.from.Add(day.to.Sub(day.from) / paymentsPerDay * time.Duration(written))
					pipe.XAdd(ctx, &goredis.XAddArgs{Stream: feedKey, ID: fmt.Sprintf("%d-*", at.UnixMilli()), Values: entry.Values})
					written++
				}
				return nil
			})
			fixture.Check(err)
		}
	}
}

// measureExport downloads yesterday once.
func (b *bench) measureExport(ctx context.Context, address string, ratios report.Ratios) {
	path := merchantPath + "/payments.csv?day=" + time.Now().UTC().Add(-24*time.Hour).Format(time.DateOnly)
	conn := fixture.Must(new(net.Dialer).DialContext(ctx, "tcp", address))
	defer func() { _ = conn.Close() }()
	started := time.Now()
	fixture.Must(conn.Write(b.target(ctx, address, path, 0).Next(0, 0, nil)))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	fixture.Check(err)
	defer func() { _ = response.Body.Close() }()
	ratios["console_csv_first_byte_ms"] = time.Since(started).Seconds() * 1e3
	rows := bytes.Count(fixture.Must(io.ReadAll(response.Body)), []byte("\n"))
	ratios["console_csv_s"] = time.Since(started).Seconds()
	if rows != paymentsPerDay+1 {
		fixture.Check(fmt.Errorf("the CSV has %d lines", rows))
	}
}

// fill creates a namespace of merchants that the group staff may see; merchant-3 has keys.
func fill(ctx context.Context, kube client.Client, namespace string) error {
	meta := func(name string, i int) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(name, "-", i)}
	}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"merchant-operator.io"}, Resources: []string{"merchants"}, Verbs: []string{"get", "viewpayments"}}}
	staff := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "staff"}}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&rbacv1.Role{ObjectMeta: meta("staff", 0), Rules: rules},
		&rbacv1.RoleBinding{ObjectMeta: meta("staff", 0), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "staff-0"}, Subjects: staff},
	}
	for i := range perNamespace {
		merchant := v1alpha1.MerchantSpec{DisplayName: fmt.Sprintf("Coffee %d of %s", i, namespace)}
		till := v1alpha1.ApiKeySpec{MerchantRef: v1alpha1.MerchantReference{Name: "merchant-3"}}
		objects = append(objects, &v1alpha1.Merchant{ObjectMeta: meta("merchant", i), Spec: merchant}, &v1alpha1.ApiKey{ObjectMeta: meta("till", i), Spec: till})
	}
	for _, object := range objects {
		if err := kube.Create(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// target is a page for a person of the group staff, who is signed in.
func (b *bench) target(ctx context.Context, address, path string, person int) load.Target {
	cookie := fmt.Sprintf("00%043d", person)
	login := redis.BucketKeyspace(0).Key("login:", fmt.Sprintf("%x", sha256.Sum256([]byte(cookie))))
	record := fmt.Sprintf(`{"account":"%d","user":"person-%d","groups":["staff"],"name":"Person"}`, person, person)
	fixture.Check(b.redis.HSet(ctx, login, "ends", time.Now().Add(time.Hour).UnixMilli(), "record", record).Err())
	request := load.Get(path, "Cookie: __Host-console-login="+cookie).Bytes()
	return load.Target{Name: path, Address: address, Status: http.StatusOK, Next: func(int, int, []byte) []byte { return request }}
}

// list is the page that is measured, with all merchants.
func (b *bench) list(ctx context.Context, address string) string {
	conn := fixture.Must(new(net.Dialer).DialContext(ctx, "tcp", address))
	defer func() { _ = conn.Close() }()
	fixture.Must(conn.Write(b.target(ctx, address, "/", 0).Next(0, 0, nil)))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	fixture.Check(err)
	defer func() { _ = response.Body.Close() }()
	page := string(fixture.Must(io.ReadAll(response.Body)))
	if !strings.Contains(strings.ReplaceAll(page, ",", ""), fmt.Sprint(namespaces*perNamespace, " merchants")) { // 1,000 in English
		fixture.Check(fmt.Errorf("the list has not all merchants: %s", page))
	}
	return page
}
