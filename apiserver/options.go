package apiserver

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/merchant-operator/merchant-operator/api/published"
	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/apiserver/payer"
	"github.com/merchant-operator/merchant-operator/apiserver/payer/page"
	"github.com/merchant-operator/merchant-operator/apiserver/sessions"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/role"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Options configure Run. Start from DefaultOptions; only RedisURL has no default.
type Options struct {
	// Options are those of every role.
	role.Options

	// CredentialsNamespace holds the published objects. Default merchant-operator-credentials.
	CredentialsNamespace string

	// SessionRetention is how long a session can be read after its expiry. Default 72 h.
	SessionRetention time.Duration
	// MaxSessionsPerDay bounds the sessions that a merchant creates at this replica, as sessions.Options.MaxPerDay says. Default 100,000.
	MaxSessionsPerDay int64
	// Receipts: dispatchers send receipts, so the address for one is stored. Default false.
	Receipts bool
	// History is how much of each merchant's feed is kept. Default 7 days and 1,000,000 events.
	History feed.History
	// LastUseStep is how often this replica records the last use of each digest, at most. Default 10 min.
	LastUseStep time.Duration

	// PublicAddress is the API's listen address, the one an ingress routes to. Default :8080.
	PublicAddress string
	// InternalAddress is for callers inside the cluster. Default :8081.
	InternalAddress string
	// InternalCertificateDir has tls.crt and tls.key of the internal port, which then serves TLS only. Default: plain HTTP, and no
	// key is issued there unless the address is a loopback one.
	InternalCertificateDir string

	// MaxConnections is the maximum of concurrent client connections; the longest idle is closed first. An idle one takes about
	// 23 KiB. Default 10,000.
	MaxConnections int

	// Streams are the streams and long polls of public statuses.
	Streams payer.StreamOptions

	// QRScheme is the URI scheme of QR payloads, <scheme>://qr/<session id>. Default pay.
	QRScheme string
	// QRContent is what the QR codes of payers' pages hold: the payload (default), or the address of the page itself.
	QRContent string
	// PaymentAppURL is where the button of a page leads, with session.IDPlaceholder for the session's id. Default: the QR payload.
	PaymentAppURL string
	// PublicURL is the https address under which payers reach the public listener; needed for QRContentLink. Default none: the Link of a
	// created session is relative.
	PublicURL string
	// TrustedProxies are the address blocks whose X-Forwarded-For is used. Default none.
	TrustedProxies []netip.Prefix
	// PublicRateLimit limits the public reads of one client address at each replica, and over all replicas in each of the 64 buckets of
	// sessions; those of test sessions apart. Default 50 per second, burst 100.
	PublicRateLimit v1alpha1.RateLimit

	// InternalAudience is the audience of tokens on the internal port. Default that of the Kubernetes API.
	InternalAudience string
	// InternalCacheTTL is how long the authentication and authorization of a caller of the internal port are cached, so how long
	// it keeps a right that was removed. Default 10 s.
	InternalCacheTTL time.Duration

	// SettlementReplicas is the number of Redis replicas that must acknowledge a settlement. If fewer do, the response is 503
	// and the rail repeats its report. 0: the master only. Default nil: what redis.ChooseReplicas says of RedisURL.
	SettlementReplicas *int
	// SettlementWait is the timeout of these acknowledgements. Default 300 ms.
	SettlementWait time.Duration

	// AccessLog logs each request at INFO. Default: at DEBUG.
	AccessLog bool
	// LogRefusedKeys logs reason, key id and client address of keys with response 401, at most once a second for each key id and
	// address. Default: nothing, because a client address may be personal data.
	LogRefusedKeys bool
}

// DefaultOptions returns Options with every default filled in.
func DefaultOptions() Options {
	return Options{
		Options:              role.DefaultOptions(),
		CredentialsNamespace: "merchant-operator-credentials",
		SessionRetention:     72 * time.Hour,
		MaxSessionsPerDay:    100_000,
		LastUseStep:          published.LastUseStep,
		History:              feed.History{}.WithDefaults(),
		PublicAddress:        ":8080",
		InternalAddress:      ":8081",
		MaxConnections:       10_000,
		Streams: payer.StreamOptions{
			Max: 10_000, MaxPerAddress: 100,
			Reread: time.Minute, Heartbeat: 15 * time.Second, WriteTimeout: 10 * time.Second, Drain: 10 * time.Second,
		},
		QRScheme:         "pay",
		QRContent:        QRContentPayload,
		PublicRateLimit:  v1alpha1.RateLimit{RequestsPerSecond: 50, Burst: 100},
		InternalCacheTTL: 10 * time.Second,
		SettlementWait:   300 * time.Millisecond,
	}
}

// What the QR codes of payers' pages hold.
const (
	QRContentPayload = "Payload"
	QRContentLink    = "Link"
)

// validateQR checks what QR codes are made of.
func (o Options) validateQR() error {
	if err := page.CheckScheme(o.QRScheme); err != nil {
		return fmt.Errorf("--qr-scheme: %w", err)
	}
	if o.PaymentAppURL != "" {
		if err := page.CheckAppURL(o.PaymentAppURL); err != nil {
			return fmt.Errorf("--payment-app-url %w", err)
		}
	}
	if o.QRContent != QRContentPayload && o.QRContent != QRContentLink {
		return fmt.Errorf("--qr-content must be %s or %s", QRContentPayload, QRContentLink)
	}
	if o.PublicURL == "" {
		if o.QRContent == QRContentLink {
			return errors.New("set --public-url, which --qr-content=Link needs")
		}
		return nil
	}
	public, err := url.Parse(o.PublicURL)
	if err != nil || public.Scheme != "https" || public.Hostname() == "" || public.User != nil ||
		strings.Trim(public.Path, "/") != "" || strings.ContainsAny(o.PublicURL, "?#") {
		return errors.New("--public-url must be an https URL without a path, such as https://pay.example.com")
	}
	return nil
}

// Validate names the flag of an invalid option.
func (o Options) Validate() error {
	if err := o.Options.Validate(); err != nil {
		return err
	}
	if o.MaxSessionsPerDay < 0 || o.MaxSessionsPerDay > sessions.MostPerDay {
		return fmt.Errorf("--max-sessions-per-day must be from 0 to %d", sessions.MostPerDay)
	}
	if err := (store.Options{SessionRetention: o.SessionRetention}).Validate(); err != nil {
		return fmt.Errorf("--session-retention: %w", err)
	}
	if _, err := clientaddr.NewResolver(o.TrustedProxies); err != nil {
		return err
	}
	switch {
	case o.MaxConnections < 1:
		return errors.New("--max-connections must be at least 1")
	case o.Streams.Max < 1 || o.Streams.MaxPerAddress < 1:
		return errors.New("--max-streams and --max-streams-per-address must be at least 1")
	case o.Streams.Reread <= 0 || o.Streams.Heartbeat <= 0 || o.Streams.WriteTimeout <= 0:
		return errors.New("options of streams: Reread, Heartbeat and WriteTimeout must be positive")
	case o.Streams.Drain < 0 || o.Streams.Drain >= o.ShutdownTimeout:
		return errors.New("options of streams: Drain must not be negative, and shorter than ShutdownTimeout")
	case o.PublicRateLimit.RequestsPerSecond < 1 || o.PublicRateLimit.Burst < 1:
		return errors.New("--public-rate and --public-burst must be at least 1")
	case o.InternalCacheTTL <= 0:
		return errors.New("InternalCacheTTL must be positive")
	case o.SettlementReplicas != nil && *o.SettlementReplicas < 0:
		return errors.New("--settlement-replicas must not be negative")
	case o.SettlementWait < time.Millisecond:
		return errors.New("--settlement-wait must be at least 1ms")
	}
	return errors.Join(
		kube.CheckNamespace("--credentials-namespace", o.CredentialsNamespace),
		httpserver.CheckAddress("--public-address", o.PublicAddress),
		httpserver.CheckAddress("--internal-address", o.InternalAddress),
		o.validateQR(), o.History.Validate(),
	)
}
