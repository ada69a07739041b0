package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/merchant-operator/merchant-operator/test/bench/fixture"
	"github.com/merchant-operator/merchant-operator/test/bench/load"
)

// bench is what runs while it is measured.
type bench struct {
	*fixture.Fixture

	redis                  *fixture.Redis
	product, floors, naive *fixture.Process
	merchant               fixture.Merchant
	key                    string // the API key
	session                string // id of the session that is read
	plan                   plan
	kept                   map[string]keptKey
}

const charge = `{"amountCents": 1250, "orderRef": "table 7, order 4711", "taxCents": 200, "tipCents": 100}`

func (b *bench) start(ctx context.Context) {
	b.redis = b.StartRedis(ctx)
	publisher := b.NewPublisher(ctx, fixture.Namespace)
	b.merchant = fixture.Must(publisher.Merchant(ctx, 0, ""))
	b.key = fixture.Must(publisher.Key(ctx, 0, 0, 1))
	b.product = b.StartAPI(ctx, b.Kubeconfig, fixture.Namespace, b.redis.URL())
	b.makePlan(ctx)
	b.floors = b.startServer(ctx, order{Plan: b.plan})
	b.naive = b.startServer(ctx, order{Naive: b.redis.Addr()})
}

func (b *bench) startServer(ctx context.Context, what order) *fixture.Process {
	server, address := b.StartSelf(ctx, bytes.NewReader(fixture.Must(json.Marshal(what))), serveCommand)
	server.Address, server.Ops = address, "http://"+address
	return server
}

// makePlan records the product as it creates and reads a session, and keeps the one that is read.
func (b *bench) makePlan(ctx context.Context) {
	created, answer := b.record(ctx, fixture.CreateSession(b.key, charge))
	b.plan = plan{Redis: b.redis.URL(), Create: call{created, sessionOf(answer)}, CreateAnswer: answer.Body}
	b.session = sessionOf(b.ask(ctx, replayRequest(b.key)))
	b.keep(ctx)
	read, answer := b.record(ctx, fixture.PublicSession(b.session))
	b.plan.Read, b.plan.ReadAnswer = call{read, b.session}, answer.Body
}

// record makes a request for which the product sends one command to Redis, and returns that.
func (b *bench) record(ctx context.Context, request load.Request) (sent []string, answer load.Answer) {
	b.ask(ctx, request) // Redis may not know the script yet
	all := fixture.Commands(ctx, func() { answer = b.ask(ctx, request) }, b.redis)
	if len(all) != 1 {
		fixture.Check(fmt.Errorf("the product sent %d commands for one request, not 1: %q", len(all), all))
	}
	return all[0], answer
}

func (b *bench) ask(ctx context.Context, request load.Request) load.Answer {
	answer := fixture.Must(request.Do(ctx, b.HTTP, "http://"+b.product.Address))
	if answer.Status != request.Status {
		fixture.Check(fmt.Errorf("%s %s: status %d: %s", request.Method, request.Path, answer.Status, answer.Body))
	}
	return answer
}

func sessionOf(answer load.Answer) string {
	var created struct {
		SessionID string `json:"sessionId"`
	}
	_ = json.Unmarshal([]byte(answer.Body), &created) // a request with an empty id is answered with 404
	return created.SessionID
}

// keptKey is a key of Redis that outlives renew.
type keptKey struct {
	dump string
	ttl  time.Duration
}

// keep remembers what is in Redis now.
func (b *bench) keep(ctx context.Context) {
	b.kept = map[string]keptKey{}
	for _, key := range fixture.Must(b.redis.Keys(ctx, "*").Result()) {
		ttl := fixture.Must(b.redis.PTTL(ctx, key).Result())
		if dump, err := b.redis.Dump(ctx, key).Result(); err == nil { // else it has expired
			b.kept[key] = keptKey{dump, max(ttl, 0)}
		}
	}
}

// renew leaves in Redis what was kept, and nothing else, so that each measurement finds the same.
func (b *bench) renew(ctx context.Context) {
	fixture.Check(b.redis.Do(ctx, "FLUSHALL", "SYNC").Err())
	for key, kept := range b.kept {
		fixture.Check(b.redis.Restore(ctx, key, kept.ttl, kept.dump).Err())
	}
	fixture.Check(registerNaive(ctx, b.redis, b.key, b.merchant.Name))
}
