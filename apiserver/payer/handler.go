// Package payer shows a session to anyone with its id: as a page, a QR code, a status, or a stream of it. Payers wait in a queue of their own
// before Redis.
package payer

import (
	"compress/gzip"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/merchant-operator/merchant-operator/apiserver/live"
	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/apiserver/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/directory"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/session"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Links are the addresses that a payer gets of a session.
type Links struct {
	// Base is --public-url without a slash at its end; empty: unknown.
	Base string
	// Scheme is that of QR payloads.
	Scheme string
	// App is --payment-app-url, where the button of a page leads; empty: to the payload.
	App string
}

// Header is the value of the header Link for a session's page. Without a base it is relative: the client resolves it with the address it
// has sent the request to (RFC 8288), which no proxy can spoil and no Host header forge.
func (l Links) Header(id session.ID) string {
	return "<" + l.page(id) + `>; rel="payment"`
}

func (l Links) page(id session.ID) string { return l.Base + page.Path(id) }

// Payload is the text of the payer's QR code.
func (l Links) Payload(id session.ID) string { return l.Scheme + "://qr/" + id.String() }

func (l Links) appURL(id session.ID) string {
	return strings.Replace(l.App, session.IDPlaceholder, id.String(), 1)
}

// Options are those of a Handler.
type Options struct {
	Store     *store.Store
	Directory *directory.Directory
	Clients   clientaddr.Resolver
	Live      *live.Hub
	Links     Links
	// LinkInQR: QR codes hold the address of the page instead of the payload.
	LinkInQR bool
	// Limit is that of the reads of one client address.
	Limit ratelimit.Policy
	Now   func() time.Time
	// MaxConnections is the maximum of client connections, of which payers who wait take at most half. Clustered: Redis is a Redis Cluster.
	MaxConnections int
	Clustered      bool
	Streams        StreamOptions
	// Draining is closed when this replica drains.
	Draining   <-chan struct{}
	Registerer prometheus.Registerer
}

// Handler shows sessions to anyone with their id: as a page, a QR code, a status, or a stream of it.
type Handler struct {
	store     *store.Store
	directory *directory.Directory
	clients   clientaddr.Resolver
	live      *live.Hub
	links     Links
	linkInQR  bool
	limit     ratelimit.Policy
	reads     *ratelimit.Limiter // of addresses, by limit
	queues    *queues
	streams   *streams
	longPoll  web.LongPoll
	pages     *page.Pages

	crossOrigin *http.CrossOriginProtection

	compressors sync.Pool // of *gzip.Writer, each of which takes 800 KB to make
}

// New returns a Handler. End its streams with Finish or Close.
func New(o Options) (*Handler, error) {
	pages, err := page.New()
	if err != nil {
		return nil, err
	}
	return &Handler{
		store: o.Store, directory: o.Directory, clients: o.Clients, live: o.Live, links: o.Links, linkInQR: o.LinkInQR,
		limit: o.Limit, reads: ratelimit.NewLimiter(o.Limit, o.Now), queues: newQueues(o.MaxConnections, o.Clustered, o.Registerer),
		streams: newStreams(o.Streams, o.Draining), pages: pages,
		longPoll:    web.LongPoll{Draining: o.Draining, Drain: o.Streams.Drain, WriteTimeout: o.Streams.WriteTimeout},
		crossOrigin: http.NewCrossOriginProtection(),
		compressors: sync.Pool{New: func() any { return gzip.NewWriter(nil) }},
	}, nil
}

// Finish waits for the streams, which end by themselves in a drain, and ends the others with ctx. No request may be in progress.
func (h *Handler) Finish(ctx context.Context) { h.streams.finish(ctx) }

// Close ends all streams.
func (h *Handler) Close() { h.streams.close() }
