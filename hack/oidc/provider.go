package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v3"
	"github.com/ory/fosite"
	"github.com/ory/fosite/compose"
	"github.com/ory/fosite/handler/openid"
	"github.com/ory/fosite/storage"
	"github.com/ory/fosite/token/jwt"
	"golang.org/x/crypto/bcrypt"
)

// client is the only client of the provider.
type client struct {
	id, secret string
	redirects  []string
}

// provider issues ID tokens by the authorization code flow, with PKCE.
type provider struct {
	issuer string
	oauth2 fosite.OAuth2Provider
	key    *jose.JSONWebKey
	users  []user
}

func newProvider(issuer string, client client, users []user) (*provider, error) {
	const keyBits, secretBytes = 2048, 32
	private, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, fmt.Errorf("generate the signing key: %w", err)
	}
	secret, err := bcrypt.GenerateFromPassword([]byte(client.secret), bcrypt.MinCost)
	if err != nil {
		return nil, fmt.Errorf("hash the client secret: %w", err)
	}
	store := storage.NewMemoryStore()
	store.Clients[client.id] = &fosite.DefaultClient{
		ID: client.id, Secret: secret, RedirectURIs: client.redirects,
		ResponseTypes: []string{"code"}, GrantTypes: []string{"authorization_code"},
		Scopes: []string{"openid", "profile", "email", "groups"},
	}
	global := make([]byte, secretBytes)
	_, _ = rand.Read(global)
	config := &fosite.Config{GlobalSecret: global, IDTokenIssuer: issuer, EnforcePKCE: true, ScopeStrategy: fosite.ExactScopeStrategy}
	config.ClientSecretsHasher = &fosite.BCrypt{Config: config} // the default is set with the first request, unsynchronized
	p := &provider{issuer: issuer, users: users, key: &jose.JSONWebKey{Key: private, KeyID: "1", Algorithm: "RS256", Use: "sig"}}
	signingKey := func(context.Context) (any, error) { return p.key, nil }
	p.oauth2 = compose.Compose(config, store, &compose.CommonStrategy{
		CoreStrategy:               compose.NewOAuth2HMACStrategy(config),
		OpenIDConnectTokenStrategy: compose.NewOpenIDConnectStrategy(signingKey, config),
		Signer:                     &jwt.DefaultSigner{GetPrivateKey: signingKey},
	}, compose.OAuth2AuthorizeExplicitFactory, compose.OpenIDConnectExplicitFactory, compose.OAuth2PKCEFactory)
	return p, nil
}

func (p *provider) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discover)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	return mux
}

func (p *provider) discover(w http.ResponseWriter, _ *http.Request) {
	respond(w, map[string]any{
		"issuer":                                p.issuer,
		"authorization_endpoint":                p.issuer + "/authorize",
		"token_endpoint":                        p.issuer + "/token",
		"jwks_uri":                              p.issuer + "/keys",
		"response_types_supported":              []string{"code"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"code_challenge_methods_supported":      []string{"S256"},
	})
}

func (p *provider) keys(w http.ResponseWriter, _ *http.Request) {
	respond(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p.key.Public()}})
}

// authorize shows the login page, and answers it with a code. There is no session: each authorization asks for the password.
func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	username, password := r.PostFormValue("username"), r.PostFormValue("password")
	r.Form, r.PostForm = r.URL.Query(), nil // fosite stores the form; the password is none of its business
	request, err := p.oauth2.NewAuthorizeRequest(r.Context(), r)
	if err != nil {
		p.oauth2.WriteAuthorizeError(r.Context(), w, request, err)
		return
	}
	found := p.find(username, password)
	if found == nil {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = loginPage.Execute(w, r.Method == http.MethodPost)
		return
	}
	for _, scope := range request.GetRequestedScopes() {
		request.GrantScope(scope)
	}
	now := time.Now().UTC()
	response, err := p.oauth2.NewAuthorizeResponse(r.Context(), request, &openid.DefaultSession{
		Subject: found.Username,
		Headers: &jwt.Headers{},
		Claims: &jwt.IDTokenClaims{
			Issuer: p.issuer, Subject: found.Username, AuthTime: now, RequestedAt: now,
			Extra: map[string]any{"preferred_username": found.Username, "email": found.Email, "email_verified": true, "name": found.Name, "groups": found.Groups},
		},
	})
	if err != nil {
		p.oauth2.WriteAuthorizeError(r.Context(), w, request, err)
		return
	}
	p.oauth2.WriteAuthorizeResponse(r.Context(), w, request, response)
}

func (p *provider) find(username, password string) *user {
	for i, user := range p.users {
		if user.Username == username && subtle.ConstantTimeCompare([]byte(user.Password), []byte(password)) == 1 {
			return &p.users[i]
		}
	}
	return nil
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	request, err := p.oauth2.NewAccessRequest(r.Context(), r, &openid.DefaultSession{Headers: &jwt.Headers{}, Claims: &jwt.IDTokenClaims{}})
	if err != nil {
		p.oauth2.WriteAccessError(r.Context(), w, request, err)
		return
	}
	response, err := p.oauth2.NewAccessResponse(r.Context(), request)
	if err != nil {
		p.oauth2.WriteAccessError(r.Context(), w, request, err)
		return
	}
	p.oauth2.WriteAccessResponse(r.Context(), w, request, response)
}

func respond(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // texts and a key can be encoded, and the client may have gone
}

var loginPage = template.Must(template.New("login").Parse(`<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in</title>
<style>body{font:1rem system-ui;max-width:20rem;margin:15vh auto;padding:0 1rem}label,input,button{display:block;width:100%;box-sizing:border-box}
input,button{font:inherit;padding:.5rem;margin:.25rem 0 1rem}</style>
<h1>Sign in</h1><p>Provider of the development environment.</p>{{if .}}<p role="alert">Wrong user or password.</p>{{end}}
<form method="post"><label>User<input name="username" autocomplete="username" autofocus></label>
<label>Password<input name="password" type="password" autocomplete="current-password"></label><button>Sign in</button></form></html>
`))
