package console

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/internal/clientaddr"
	"github.com/merchant-operator/merchant-operator/internal/feed"
	"github.com/merchant-operator/merchant-operator/internal/httpserver"
	"github.com/merchant-operator/merchant-operator/internal/kube"
	"github.com/merchant-operator/merchant-operator/internal/ratelimit"
	"github.com/merchant-operator/merchant-operator/internal/role"
	"github.com/merchant-operator/merchant-operator/internal/store"
)

// Options configure Run. Start from DefaultOptions; RedisURL, ExternalURL and the provider have no default.
type Options struct {
	// Options are the options of every role.
	role.Options

	// WatchNamespaces are the namespaces whose Merchants are shown; empty: all.
	WatchNamespaces []string

	// Address is the listen address. Default :8083.
	Address string
	// CertificateDir has tls.crt and tls.key of this address, which then serves TLS only. Default: plain HTTP, for a proxy that
	// terminates TLS.
	CertificateDir string
	// ExternalURL is the origin that browsers use, such as https://console.example. It is https, or http on a loopback address.
	ExternalURL string
	// APIURL is the origin of the payment API, for the examples that people copy.
	APIURL string
	// InternalURL is the origin of the API's internal port, where keys are rotated; https, or http on a loopback address.
	InternalURL string
	// InternalCAFile has the certificate authority of the internal port. Default: the authorities of the system.
	InternalCAFile string
	// InternalTokenFile has the token for the internal port, if it wants an audience of its own. Default: the account's token.
	InternalTokenFile string
	// TrustedProxies are the address blocks whose X-Forwarded-For is used. Default none.
	TrustedProxies []netip.Prefix
	// RequestLimit is for the requests of one client address, at each replica. Assets are not counted. Default 20 a second, 200 at once.
	RequestLimit ratelimit.Policy

	// Provider is the OpenID provider where people sign in.
	Provider ProviderOptions
	// History is how much of each merchant's feed is kept, as the API has it. Default 7 days and 1,000,000 events.
	History feed.History
	// SessionRetention and SettlementReplicas have the same values as the API's flags, because people ask for refunds here. Defaults: 72 h, and what
	// redis.ChooseReplicas says of RedisURL.
	SessionRetention   time.Duration
	SettlementReplicas *int

	// LoginIdle ends a login that was not used for this time. Default 1 h.
	LoginIdle time.Duration
	// LoginLifetime ends every login, so that the person's groups are read again. Default 1 h.
	LoginLifetime time.Duration
	// RightsLifetime is how long a decision of the Kubernetes API is cached, so how long a removed right works. Default 10 s.
	RightsLifetime time.Duration
}

// Limits of a request.
const (
	maxForm      = 64 << 10 // bytes
	writeTimeout = web.RequestTimeout + 3*time.Second
)

// ProviderOptions are the options of the OpenID provider.
type ProviderOptions = login.ProviderOptions

// DefaultOptions returns Options with every default filled in.
func DefaultOptions() Options {
	shared := role.DefaultOptions()
	shared.ShutdownTimeout = web.RequestTimeout + 5*time.Second
	return Options{
		Options:        shared,
		Address:        ":8083",
		RequestLimit:   ratelimit.Policy{RequestsPerSecond: 20, Burst: 200},
		Provider:       login.DefaultProviderOptions(),
		History:        feed.History{}.WithDefaults(),
		LoginIdle:      time.Hour,
		LoginLifetime:  time.Hour,
		RightsLifetime: 10 * time.Second,

		SessionRetention: 72 * time.Hour,
	}
}

// Validate names the flag of an invalid option.
func (o Options) Validate() error {
	if err := o.Options.Validate(); err != nil {
		return err
	}
	if _, err := clientaddr.NewResolver(o.TrustedProxies); err != nil {
		return err
	}
	switch {
	case o.RequestLimit.RequestsPerSecond < 1 || o.RequestLimit.Burst < 1:
		return errors.New("--address-rate and --address-burst must be at least 1")
	case o.LoginIdle < time.Minute || o.LoginLifetime < o.LoginIdle:
		return errors.New("--login-idle must be at least 1m, and --login-lifetime at least as long")
	case o.RightsLifetime <= 0:
		return errors.New("RightsLifetime must be positive")
	case o.SettlementReplicas != nil && *o.SettlementReplicas < 0:
		return errors.New("--settlement-replicas must not be negative")
	}
	if err := (store.Options{SessionRetention: o.SessionRetention}).Validate(); err != nil {
		return fmt.Errorf("--session-retention: %w", err)
	}
	return errors.Join(
		kube.CheckNamespaces("--watch-namespaces", o.WatchNamespaces), httpserver.CheckAddress("--console-address", o.Address), checkOrigin("--external-url", o.ExternalURL),
		checkOrigin("--internal-url", o.InternalURL), checkOptionalOrigin("--api-url", o.APIURL), o.Provider.Validate(), o.History.Validate(),
	)
}
