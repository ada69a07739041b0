package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/text/language"

	"github.com/merchant-operator/merchant-operator/internal/money"
)

// defaultLanguage is that of payers who want none of ours.
const defaultLanguage = "en"

// texts are all texts of the pages in one language, texts/<language>.json.
type texts struct {
	TestMode        string `json:"testMode"`
	TestPay         string `json:"testPay"`
	TestDecline     string `json:"testDecline"`
	PaymentTo       string `json:"paymentTo"`
	Scan            string `json:"scan"`
	ScanText        string `json:"scanText"`
	OpenAppText     string `json:"openApp"`
	QRCode          string `json:"qrCode"`
	TimeLeftText    string `json:"timeLeft"`
	WhenLoaded      string `json:"whenLoaded"`
	Updates         string `json:"updates"`
	Minutes5        string `json:"minutes5"`
	Minute1         string `json:"minute1"`
	TimeOver        string `json:"timeOver"`
	Waiting         string `json:"waiting"` // of the widget
	Paid            string `json:"paid"`
	PaidText        string `json:"paidText"`
	Tax             string `json:"tax"`
	Tip             string `json:"tip"`
	PaidAt          string `json:"paidAt"`
	Reference       string `json:"reference"`
	Order           string `json:"order"`
	Refunded        string `json:"refunded"`
	Received        string `json:"received"` // {amount} of a payment that the session did not take
	WentBack        string `json:"wentBack"`
	Failed          string `json:"failed"`
	FailedText      string `json:"failedText"`
	Expired         string `json:"expired"`
	Cancelled       string `json:"cancelled"`
	CancelledText   string `json:"cancelledText"`
	AlreadyPaid     string `json:"alreadyPaid"`
	LateRefund      string `json:"lateRefund"`
	NotPaid         string `json:"notPaid"`
	NotFound        string `json:"notFound"`
	NotFoundText    string `json:"notFoundText"`
	Limited         string `json:"limited"`
	LimitedText     string `json:"limitedText"`
	Unavailable     string `json:"unavailable"`
	UnavailableText string `json:"unavailableText"`
	CheckAgain      string `json:"checkAgain"`
	NotConnected    string `json:"notConnected"`
	BackToShop      string `json:"backToShop"`
}

// translation is one language of the pages.
type translation struct {
	texts

	Lang string // BCP 47
	Dir  string // ltr or rtl

	amounts money.Formatter
}

// readTranslations returns all languages, the default first, and what picks one of them.
func readTranslations() ([]translation, language.Matcher, error) {
	names, err := fs.Glob(files, "texts/*.json")
	if err != nil {
		return nil, nil, fmt.Errorf("list texts: %w", err)
	}
	var all []translation
	var tags []language.Tag
	for _, name := range names {
		lang := strings.TrimSuffix(strings.TrimPrefix(name, "texts/"), ".json")
		in, tag, err := readTranslation(name, lang)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		if lang == defaultLanguage {
			all, tags = append([]translation{in}, all...), append([]language.Tag{tag}, tags...)
			continue
		}
		all, tags = append(all, in), append(tags, tag)
	}
	return all, language.NewMatcher(tags), nil
}

func readTranslation(name, lang string) (translation, language.Tag, error) {
	tag, err := language.Parse(lang)
	if err != nil {
		return translation{}, tag, err
	}
	content, err := files.ReadFile(name)
	if err != nil {
		return translation{}, tag, err
	}
	in := translation{Lang: lang, Dir: direction(tag), amounts: money.NewFormatter(tag)}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	return in, tag, decoder.Decode(&in.texts)
}

func direction(tag language.Tag) string {
	if script, _ := tag.Script(); script == language.MustParseScript("Arab") {
		return "rtl"
	}
	return "ltr"
}

// maxAcceptLanguage is more than any browser sends. To match thousands of languages takes more time than all else of a page, and the page of
// an error has no limit of requests.
const maxAcceptLanguage = 512

// translation returns the best language for a header Accept-Language, however malformed it is.
func (p *Pages) translation(acceptLanguage string) translation {
	if len(acceptLanguage) > maxAcceptLanguage {
		return p.translations[0]
	}
	preferred, _, err := language.ParseAcceptLanguage(acceptLanguage)
	if err != nil {
		return p.translations[0]
	}
	_, index, _ := p.matcher.Match(preferred...)
	return p.translations[index]
}
