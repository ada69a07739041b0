// Package web is what all pages of the console share: templates, words, times, and requests about a Merchant.
package web

import (
	"errors"
	"net/http"
	"time"

	"github.com/merchant-operator/merchant-operator/api/v1alpha1"
	"github.com/merchant-operator/merchant-operator/console/login"
)

// ErrNotFound is the answer to what does not exist and to what the person may not see.
var ErrNotFound = errors.New("not found")

// RequestTimeout is how long a request may take.
const RequestTimeout = 25 * time.Second

// Request is one about a Merchant, of a person with the right to it.
type Request struct {
	*http.Request

	Viewer   login.Person
	Merchant *v1alpha1.Merchant
}

// MerchantURL is the page of a Merchant.
func MerchantURL(merchant *v1alpha1.Merchant) string {
	return "/merchants/" + merchant.Namespace + "/" + merchant.Name
}

// LeadTo ends an action at a path or section of the Merchant's page: a reload does not repeat it.
func (r *Request) LeadTo(w http.ResponseWriter, path string) error {
	http.Redirect(w, r.Request, MerchantURL(r.Merchant)+path, http.StatusSeeOther)
	return nil
}

// View shows the data under the name of the Merchant.
func (r *Request) View(data any) View {
	return View{Title: r.Merchant.Spec.DisplayName, Viewer: &r.Viewer, Data: data}
}

// TitledView is View with a title before that name.
func (r *Request) TitledView(title string, data any) View {
	return View{Title: title + " · " + r.Merchant.Spec.DisplayName, Viewer: &r.Viewer, Data: data}
}
