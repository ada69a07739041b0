package console

import (
	"net/http"

	"github.com/merchant-operator/merchant-operator/console/allowlist"
	"github.com/merchant-operator/merchant-operator/console/keys"
	"github.com/merchant-operator/merchant-operator/console/login"
	"github.com/merchant-operator/merchant-operator/console/merchants"
	"github.com/merchant-operator/merchant-operator/console/payments"
	"github.com/merchant-operator/merchant-operator/console/rights"
	"github.com/merchant-operator/merchant-operator/console/web"
	"github.com/merchant-operator/merchant-operator/console/webhook"
)

// rooms have the handlers of pages and forms.
type rooms struct {
	merchants *merchants.Handler
	payments  *payments.Handler
	keys      *keys.Handler
	allowlist *allowlist.Handler
	webhook   *webhook.Handler
}

// addRoutes adds every route, with the right that it needs.
func (c *rooms) addRoutes(r *routes) {
	r.mux.Handle("GET /assets/", r.pages.Assets)
	r.open("GET "+login.SignInPath, r.login.SignIn)
	r.open("GET "+login.CallbackPath, r.inAddressTurn(r.login.Callback))
	r.open("GET "+login.SignedOutPath, r.signedOut)
	r.signedIn("POST /sign-out", r.login.SignOut)
	r.signedIn("POST /sign-out-everywhere", r.login.SignOutEverywhere)
	r.signedIn("GET /{$}", r.listInTurn(c.merchants.List))
	r.signedIn("/", func(http.ResponseWriter, *http.Request, login.Person) error { return web.ErrNotFound })

	r.onMerchantInTurn("GET", "", rights.Get, c.merchants.Show)
	r.onMerchantInTurn("GET", "/payments", rights.ViewPayments, c.payments.List)
	r.onMerchantInTurn("GET", "/payments/{payment}", rights.ViewPayments, c.payments.Show)
	r.onMerchant("GET", "/payments.csv", rights.ViewPayments, c.payments.Export)
	r.onMerchant("GET", "/payments.xlsx", rights.ViewPayments, c.payments.Excel)
	r.onMerchant("GET", "/payments/{payment}/refund", rights.RefundPayments, c.payments.ShowRefund)
	r.onMerchant("POST", "/payments/{payment}/refund", rights.RefundPayments, c.payments.Refund)
	r.onMerchant("GET", "/new-key", rights.IssueKeys, c.keys.ShowNew)
	r.onMerchant("POST", "/new-key", rights.IssueKeys, c.keys.Issue)
	r.onKey("GET", "/rotate", rights.RotateKeys, c.keys.ShowForm("key-rotate"))
	r.onKey("POST", "/rotate", rights.RotateKeys, c.keys.Rotate)
	r.onKey("GET", "/disable", rights.IssueKeys, c.keys.ShowForm("key-disable"))
	r.onKey("POST", "/disable", rights.IssueKeys, c.keys.Disable)
	r.onKey("GET", "/enable", rights.IssueKeys, c.keys.ShowForm("key-enable"))
	r.onKey("POST", "/enable", rights.IssueKeys, c.keys.Enable)
	r.onKey("GET", "/delete", rights.IssueKeys, c.keys.ShowForm("key-delete"))
	r.onKey("POST", "/delete", rights.IssueKeys, c.keys.Delete)
	r.onSpec("GET", "/allowlist", rights.EditAllowlist, c.allowlist.ShowForm)
	r.onSpec("POST", "/allowlist", rights.EditAllowlist, c.allowlist.Edit)
	r.onSpec("GET", "/webhook", rights.EditWebhook, c.webhook.ShowForm)
	r.onSpec("POST", "/webhook", rights.EditWebhook, c.webhook.Edit)
	r.onMerchant("POST", "/webhook/resume", rights.EditWebhook, c.webhook.Resume)
	r.onMerchant("GET", "/webhook/test", rights.EditWebhook, c.webhook.ShowTestEvent)
	r.onMerchant("POST", "/webhook/test", rights.EditWebhook, c.webhook.SendTestEvent)
	r.onSpec("GET", "/webhook/rotate-secret", rights.EditWebhook, c.webhook.ShowSecretForm)
	r.onSpec("POST", "/webhook/rotate-secret", rights.EditWebhook, c.webhook.RotateSigningSecret)
	r.onMerchantInTurn("GET", "/dead-letters/resend", rights.EditWebhook, c.webhook.ShowResendForm)
	r.onMerchantInTurn("POST", "/dead-letters/resend", rights.EditWebhook, c.webhook.ResendDeadLetters)
}
