package login

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"

	"github.com/merchant-operator/merchant-operator/internal/httpserver"
)

// ProviderOptions are the OpenID provider and what its ID tokens say of a person. Claims and prefixes mean the same as the flags
// of a kube-apiserver with these names, so that RoleBindings for kubectl work here too.
type ProviderOptions struct {
	IssuerURL, ClientID string
	// ClientSecret is empty for a public client.
	ClientSecret string
	// CAFile has the certificate authority of the provider. Default: those of the system.
	CAFile string
	// Scopes are requested in addition to openid. Default profile, email.
	Scopes []string
	// UsernameClaim is the claim with the user name. Default sub.
	UsernameClaim string
	// UsernamePrefix is put before it; empty: "<issuer>#", unless the claim is email; "-": none.
	UsernamePrefix string
	// GroupsClaim is the claim with the groups, one text or a list. Default: no groups.
	GroupsClaim string
	// GroupsPrefix is put before each group.
	GroupsPrefix string
}

// DefaultProviderOptions returns ProviderOptions with every default filled in.
func DefaultProviderOptions() ProviderOptions {
	return ProviderOptions{Scopes: []string{"profile", "email"}, UsernameClaim: "sub"}
}

// Validate names the flag of an invalid option.
func (o ProviderOptions) Validate() error {
	switch {
	case o.ClientID == "":
		return errors.New("set --oidc-client-id")
	case o.UsernameClaim == "":
		return errors.New("set --oidc-username-claim")
	}
	issuer, err := url.Parse(o.IssuerURL)
	if err != nil || issuer.Host == "" || !httpserver.Confidential(issuer) {
		return fmt.Errorf("--oidc-issuer-url %q is not an https URL", o.IssuerURL)
	}
	return nil
}

// provider is the OpenID provider where people sign in. It is discovered when it is first needed, so that the console starts
// without it, and people who are signed in stay so.
type provider struct {
	options  ProviderOptions
	callback string // URL of our callback
	http     *http.Client

	discovered  atomic.Pointer[discovery] // nil: not yet
	discovering singleflight.Group        // many who wait for a provider that is away wait for one answer
}

// discovery is what the provider says of itself.
type discovery struct {
	oauth2   oauth2.Config
	verifier *oidc.IDTokenVerifier
}

// Errors of a sign-in.
var (
	// ErrProvider means that the provider does not answer.
	ErrProvider = errors.New("the identity provider does not answer")
	// ErrToken means that the provider refused the code, or its ID token is not valid or not meant for this sign-in.
	ErrToken = errors.New("the sign-in was not accepted")
	// ErrClaims means that the ID token lacks what names a person, or names one that nobody may be.
	ErrClaims = errors.New("the identity provider sent no usable user name")
)

// providerTimeout limits each request to the provider.
const providerTimeout = 5 * time.Second

func newProvider(options ProviderOptions, callback string) (*provider, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // its type is documented
	// A connection that a balancer forgot is closed with its first request. Over HTTP/2 all sign-ins would wait for it together.
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	if options.CAFile != "" {
		text, err := os.ReadFile(options.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read --oidc-ca-file: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(text) {
			return nil, errors.New("--oidc-ca-file has no certificate in PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &provider{options: options, callback: callback, http: &http.Client{Transport: transport, Timeout: providerTimeout}}, nil
}

// discover returns what the provider says of itself, or ErrProvider.
func (p *provider) discover(ctx context.Context) (*discovery, error) {
	if found := p.discovered.Load(); found != nil {
		return found, nil
	}
	asked := p.discovering.DoChan("", func() (any, error) {
		found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.http), p.options.IssuerURL)
		if err != nil {
			return nil, err
		}
		p.discovered.Store(&discovery{
			oauth2: oauth2.Config{
				ClientID: p.options.ClientID, ClientSecret: p.options.ClientSecret, Endpoint: found.Endpoint(),
				RedirectURL: p.callback, Scopes: append([]string{oidc.ScopeOpenID}, p.options.Scopes...),
			},
			verifier: found.Verifier(&oidc.Config{ClientID: p.options.ClientID}),
		})
		return nil, nil //nolint:nilnil // it is stored
	})
	select {
	case answer := <-asked:
		if answer.Err != nil {
			return nil, fmt.Errorf("%w: %w", ErrProvider, answer.Err)
		}
		return p.discovered.Load(), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrProvider, ctx.Err())
	}
}

// authorizeURL is where the browser goes to sign in.
func (p *provider) authorizeURL(ctx context.Context, a attempt) (string, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return found.oauth2.AuthCodeURL(a.state(), oidc.Nonce(a.nonce()), oauth2.S256ChallengeOption(a.verifier())), nil
}

// exchange turns the code of the callback into a person. Errors: ErrProvider, ErrToken, ErrClaims.
func (p *provider) exchange(ctx context.Context, a attempt, code string) (Person, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return Person{}, err
	}
	ctx = oidc.ClientContext(ctx, p.http)
	token, err := found.oauth2.Exchange(ctx, code, oauth2.VerifierOption(a.verifier()))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response.StatusCode < http.StatusInternalServerError {
		return Person{}, fmt.Errorf("%w: the provider refused the code: %s", ErrToken, refused.ErrorCode)
	}
	if err != nil {
		return Person{}, fmt.Errorf("%w: exchange the code: %w", ErrProvider, err)
	}
	raw, _ := token.Extra("id_token").(string)
	idToken, err := found.verifier.Verify(ctx, raw)
	if err != nil {
		return Person{}, fmt.Errorf("%w: %w", ErrToken, err)
	}
	if idToken.Nonce != a.nonce() {
		return Person{}, fmt.Errorf("%w: the nonce is of another sign-in", ErrToken)
	}
	var claims map[string]any
	if err := idToken.Claims(&claims); err != nil {
		return Person{}, fmt.Errorf("%w: read the claims: %w", ErrToken, err)
	}
	return p.options.person(claims)
}

// Person is who has signed in, with the names that RoleBindings use.
type Person struct {
	// Account is the person at the provider, whatever they are called.
	Account string   `json:"account"`
	User    string   `json:"user"`
	Groups  []string `json:"groups"`
	// Name is what people call them, for the page only.
	Name string `json:"name"`
}

// What is accepted of a person. Redis keeps it for each of maxLogins logins.
const (
	maxName       = 256 // bytes
	maxGroups     = 2000
	maxGroupBytes = 64 << 10 // of all groups, as a login has them
)

// reserved begins the names of Kubernetes' own users and groups. A provider must not make anybody one of them.
const reserved = "system:"

// person reads the claims as a kube-apiserver does. The error is ErrClaims.
func (o ProviderOptions) person(claims map[string]any) (Person, error) {
	name, ok := claims[o.UsernameClaim].(string)
	if !ok || name == "" {
		return Person{}, fmt.Errorf("%w: the ID token has no claim %q", ErrClaims, o.UsernameClaim)
	}
	if verified, present := claims["email_verified"]; o.UsernameClaim == "email" && present && verified != true {
		return Person{}, fmt.Errorf("%w: the email address is not verified", ErrClaims)
	}
	user := o.usernamePrefix() + name
	subject, _ := claims["sub"].(string)
	if strings.HasPrefix(user, reserved) || len(user) > maxName || len(subject) > maxName || strings.TrimSpace(user) != user || strings.ContainsFunc(user, unprintable) {
		return Person{}, fmt.Errorf("%w: the claim %q is reserved, too long or unprintable", ErrClaims, o.UsernameClaim)
	}
	p := Person{Account: o.IssuerURL + "#" + subject, User: user, Name: name}
	if full, _ := claims["name"].(string); full != "" && len(full) <= maxName {
		p.Name = full
	}
	size := 0
	for _, group := range texts(claims[o.GroupsClaim]) {
		group = o.GroupsPrefix + group
		encoded, _ := json.Marshal(group) //nolint:errchkjson // a string can always be written
		if strings.HasPrefix(group, reserved) || len(group) > maxName || len(p.Groups) == maxGroups || size+len(encoded) > maxGroupBytes {
			continue
		}
		size += len(encoded)
		p.Groups = append(p.Groups, group)
	}
	slices.Sort(p.Groups)
	return p, nil
}

func (o ProviderOptions) usernamePrefix() string {
	switch {
	case o.UsernamePrefix == "-", o.UsernamePrefix == "" && o.UsernameClaim == "email":
		return ""
	case o.UsernamePrefix == "":
		return o.IssuerURL + "#"
	}
	return o.UsernamePrefix
}

// texts reads a claim that is one text or a list of them.
func texts(claim any) (all []string) {
	switch claim := claim.(type) {
	case string:
		return []string{claim}
	case []any:
		for _, entry := range claim {
			if text, ok := entry.(string); ok && text != "" {
				all = append(all, text)
			}
		}
	}
	return all
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }
