#include "engine/model/vocabulary.h"

namespace engine::model {

// Written for this project, for nothing but the words in it.
const char* const kVocabularyText = R"(
The lighthouse stood at the end of a long and narrow road, and nobody had lived in it for eleven years.
Every morning the keeper of the harbour looked across the water and counted the boats that came home.
What is the capital of a country? Which river runs through it, and how many people live there today?
Write a short answer, explain the reason for it, and give one example that a child could understand.
Summarize the following text in two sentences. List three things that you would need for the journey.
A question may be open or closed; an answer may be right, wrong, or only not quite what was asked for.
Water boils at one hundred degrees when the pressure is that of the sea, and sooner on a high mountain.
The moon turns around the earth in about four weeks, and always shows us the same side of its face.
Plants take carbon from the air and water from the ground; with light they make sugar and give oxygen back.
Iron is a metal, salt is a mineral, bread is food, and glass is made of sand that was heated until it melted.
When the train arrived at the station, the passengers got out, opened their umbrellas and walked into the rain.
The first letter of the alphabet is a vowel. The last letter of this word is a consonant. Both are sounds.
She wrote to her brother that the winter had been cold, that the well was frozen, and that the sheep were well.
He did not know whether the letter would reach him before spring, so he folded it carefully and kept a copy.
Numbers are older than writing. Shepherds counted their animals with stones before anyone wrote down a name.
To multiply two numbers means to add one of them to itself as many times as the other one says.
A triangle has three sides, a square has four, a circle has none; the sum of the angles of a triangle is constant.
Some animals sleep through the winter: bears, hedgehogs, bats, and a few kinds of squirrel. Birds fly south instead.
The heart pumps blood through the body; the lungs bring oxygen into it; the kidneys clean it day and night.
Computers read instructions one after another, but several of them can be at work at the same moment.
A program is a list of instructions. A function takes values and returns a value. A loop repeats until it is told to stop.
Memory is fast and small, a disk is slow and large; so one reads ahead, keeps what is needed, and forgets the rest.
The model reads a layer, computes with it, writes down what will be needed later, and goes on to the next layer.
Training means: compare what was predicted with what was written, and change the numbers a little in that direction.
The teacher asked the students to bring a leaf, to draw its shape, to name the tree, and to describe its colour.
In the market they sell apples, pears, plums, cherries, onions, potatoes, beans, cheese, honey, eggs and fresh fish.
Mix the flour with water, yeast and a little salt; let the dough rest for an hour; bake it until the crust is brown.
If you cut an onion under water your eyes will not burn, but your fingers will be in danger, so use a sharp knife.
The museum opens at nine and closes at five, except on Mondays, when only the garden can be visited without a ticket.
A bridge carries its own weight first and only then that of the people, horses, carts, cars and trains that cross it.
Please compare the two proposals, name the advantages and disadvantages of each, and say which one you would choose.
Translate this sentence into another language, and keep the meaning rather than the words or their order.
Rewrite the paragraph so that it becomes shorter, friendlier and clearer, without leaving out anything important.
Classify each of these as a fruit or a vegetable: carrot, apple, spinach, banana, cucumber, orange, tomato, grape.
Because the wind had turned, the fishermen stayed ashore, mended their nets, told old stories and waited.
History does not repeat itself, said the old professor, but those who tell it do, and they enjoy every word.
The desert is dry and hot during the day and surprisingly cold at night, since no cloud keeps the warmth in.
Sound travels through air at about three hundred and forty metres in a second, and faster through water and steel.
Light is faster than anything else; from the sun to the earth it needs a little more than eight minutes.
An island is land with water all around it. A peninsula is almost one. A continent is a very large piece of land.
The doctor recommended sleep, exercise, vegetables and patience; the patient preferred coffee, cake and conversation.
Music consists of notes, rests, rhythm and silence. A string that is half as long sounds an octave higher.
The library lends books for four weeks. Whoever returns them late pays a small fine or reads aloud to the children.
Between the village and the forest there is a meadow where horses, cows and goats graze from April until October.
Electricity flows through copper easily and through rubber hardly at all, which is why wires are wrapped in it.
Check the result twice, write down where it came from, and never throw away a measurement because you dislike it.
A clock without hands still knows the time, but nobody else does; a map without names is only a picture.
Who was it? When did it happen? Where were they? Why did nobody say anything? How would you have decided?
Yes, no, maybe, perhaps, certainly, never, always, often, sometimes, usually, rarely, again, already, still, soon.
I am, you are, he is, we were, they have been, she had been, it will be, there would be, one could be, let us be.
can could may might must shall should will would do does did done doing have has had having make makes made making
come comes came coming give gives gave given take takes took taken know knows knew known think thinks thought thinking
Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August September
red yellow green blue white black brown grey north south east west left right above below before behind beside between
zero one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand million
instruction context response category question answer explain describe summary example information following different
government university population temperature international development environment literature mathematics chemistry physics
Deniz kıyısında küçük bir köy vardı; evleri beyaz, kapıları mavi, sokakları dar ve taş döşeliydi.
Her sabah balıkçılar erkenden kalkar, ağlarını toplar, çaylarını içer ve gün doğmadan denize açılırlardı.
Türkiye'nin başkenti neresidir? En uzun nehir hangisidir? Bu soruya kısa ve açık bir cevap veriniz.
Aşağıdaki metni iki cümleyle özetleyin. Üç örnek verin ve her birinin nedenini açıklayın.
Güneş doğudan doğar, batıdan batar; kışın günler kısa, geceler uzun ve çoğu zaman soğuk olur.
Su yüz derecede kaynar, sıfır derecede donar; tuzlu su ise daha düşük bir sıcaklıkta buz tutar.
Öğretmen öğrencilerine bir yaprak getirmelerini, şeklini çizmelerini ve rengini anlatmalarını söyledi.
Kitap okumak, müzik dinlemek, yürümek ve arkadaşlarla konuşmak insanı dinlendirir ve mutlu eder.
Ekmek için un, su, maya ve tuz gerekir; hamur bir saat bekletilir, sonra fırında pişirilir.
ben sen o biz siz onlar bu şu ve veya ama çünkü için gibi kadar daha çok az ne nasıl neden nerede kim hangi
海边有一座小村庄，房子是白色的，门是蓝色的。每天早上，渔民们很早就起床，在日出之前出海。
水在一百度沸腾，在零度结冰。月亮绕着地球转，地球绕着太阳转。植物需要阳光、空气和水。
中国的首都是哪里？最长的河流是哪一条？请用两句话回答，并说明原因。
请把下面的文字总结成一句话，再举一个例子。老师让学生们画一片树叶，写出它的颜色和形状。
我们 你们 他们 这个 那个 什么 为什么 怎么 因为 所以 但是 如果 可以 没有 一个 不是 时候 问题 回答
)";

}  // namespace engine::model
