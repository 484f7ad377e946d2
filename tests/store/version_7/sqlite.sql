BEGIN TRANSACTION;
CREATE TABLE answers (
	study_id INTEGER NOT NULL, 
	rater TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	factor TEXT NOT NULL, 
	score DOUBLE, 
	reason TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY (study_id, rater, number, factor), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
INSERT INTO "answers" VALUES(1,'eve',1,'alignment',4.0,'so so',1.79485200858803701402e+09);
INSERT INTO "answers" VALUES(1,'eve',2,'alignment',4.0,'so so',1.79485200860300159455e+09);
CREATE TABLE assignments (
	study_id INTEGER NOT NULL, 
	rater TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	item TEXT NOT NULL, 
	control BOOLEAN NOT NULL, 
	PRIMARY KEY (study_id, rater, number), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
INSERT INTO "assignments" VALUES(1,'eve',1,'third-cat',0);
INSERT INTO "assignments" VALUES(1,'eve',2,'line-2',0);
CREATE TABLE batch_lines (
	batch_id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	status INTEGER, 
	answer BLOB, 
	PRIMARY KEY (batch_id, "key"), 
	FOREIGN KEY(batch_id) REFERENCES batches (id)
);
CREATE TABLE batches (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	run_id INTEGER NOT NULL, 
	judge TEXT NOT NULL, 
	mark TEXT NOT NULL, 
	provider_id TEXT, 
	state TEXT NOT NULL, 
	questions INTEGER NOT NULL, 
	created DOUBLE NOT NULL, 
	updated DOUBLE NOT NULL, 
	UNIQUE (mark)
);
CREATE TABLE checks (
	"key" TEXT NOT NULL, 
	evidence TEXT NOT NULL, 
	rules INTEGER NOT NULL, 
	factors TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE claims (
	"key" TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	until DOUBLE NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE contradictions (
	"key" TEXT NOT NULL, 
	factor TEXT NOT NULL, 
	measured TEXT NOT NULL, 
	says TEXT NOT NULL, 
	evidence TEXT NOT NULL, 
	PRIMARY KEY ("key", factor, measured)
);
CREATE TABLE digests (
	path TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	mtime_ns BIGINT NOT NULL, 
	digest TEXT NOT NULL, 
	info TEXT, 
	problem TEXT NOT NULL, ctime_ns BIGINT, inode BIGINT, 
	PRIMARY KEY (path)
);
INSERT INTO "digests" VALUES('@FOLDER@/cats/input-0.png',268,1794848407136985255,'d6cab07e208c09576ec1e6c4b602b705bb4a307b84b1eaf739db2973056c7b03','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/cats/input-1.png',268,1794848407136985255,'4f80581196a5bc2ad47643024e360b5add1d682ce9fe566d80d1de329a7b271b','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/cats/edited-1.png',268,1794848407136985255,'48f95c3e23bb2376fa0ffa1efe49e22752518432e27b5467939a482b497fcd32','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/cats/input-2.png',268,1794848407136985255,'97116f7227085b3696e632a798f68012b131e0cc723164d391b6cf9e50eaa27f','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/cats/edited-2.png',268,1794848407136985255,'8beeda8fa1b33e836a5c3c792d717d1ddc2168c54aed5a5c38109055cd7e8149','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/cats/edited-0.png',268,1794848407136985255,'c50153a0bdc8469ef784064927d70d3618ea06fa504f3db9511dadd49b200e3f','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/dogs/input-2.png',268,1794848407136985255,'78f1dd338db3018eaf90a5f54e37d1aa1463a09ece16282bb5ef0cb92235198d','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/dogs/edited-1.png',268,1794848407136985255,'51b2687bbb849d39d1a98c49088601abd96119c001ee043992834a10803bbc3d','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/dogs/edited-2.png',268,1794848407136985255,'e2b801cfc5268d1958b4f511d5bd6e4aeffaba3ea0d6b22f215013f140723c59','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/dogs/edited-0.png',268,1794848407136985255,'96143a29ed99f8b40e07a94dc3c065930ce505a7d2e25f8c9d1b1b581a61939a','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/dogs/input-1.png',268,1794848407136985255,'a8c9292155f77ea29f0efc7c4fa92d8db9cef60faca99ae76e4ff48b24bf8dcb','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
INSERT INTO "digests" VALUES('@FOLDER@/dogs/input-0.png',268,1794848407136985255,'48b9ebd6086dc3d08df4c2a59ff84fc8747502cf8c3e3d2aa06a1788b5275cb2','{"format":"png","width":8,"height":8,"size":268,"mode":"rgb","bits":8,"has_alpha":false,"orientation":1,"has_icc":false,"animated":false,"lossless":true}','',NULL,NULL);
CREATE TABLE invitations (
	study_id INTEGER NOT NULL, 
	rater TEXT NOT NULL, 
	code TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	revoked DOUBLE, 
	PRIMARY KEY (study_id, rater), 
	FOREIGN KEY(study_id) REFERENCES studies (id), 
	UNIQUE (code)
);
CREATE TABLE items (
	run_id INTEGER NOT NULL, 
	item TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	model TEXT, 
	edit_type TEXT, 
	group_ TEXT, 
	instruction TEXT NOT NULL, 
	referring_expression TEXT NOT NULL, 
	images TEXT NOT NULL, 
	metadata TEXT NOT NULL, content TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (run_id, item), 
	FOREIGN KEY(run_id) REFERENCES runs (id)
);
INSERT INTO "items" VALUES(1,'line-1',0,'m',NULL,'d6cab07e208c09576ec1e6c4b602b705bb4a307b84b1eaf739db2973056c7b03','Paint it blue.','','{"input":{"source":"@FOLDER@/cats/input-0.png","digest":"d6cab07e208c09576ec1e6c4b602b705bb4a307b84b1eaf739db2973056c7b03"},"edited":{"source":"@FOLDER@/cats/edited-0.png","digest":"c50153a0bdc8469ef784064927d70d3618ea06fa504f3db9511dadd49b200e3f"}}','{}','15289b638fe48f5c5c549b619daf985a976136a1a95b656a37e42770af179a4d');
INSERT INTO "items" VALUES(1,'line-2',1,'m',NULL,'4f80581196a5bc2ad47643024e360b5add1d682ce9fe566d80d1de329a7b271b','Paint it blue.','','{"input":{"source":"@FOLDER@/cats/input-1.png","digest":"4f80581196a5bc2ad47643024e360b5add1d682ce9fe566d80d1de329a7b271b"},"edited":{"source":"@FOLDER@/cats/edited-1.png","digest":"48f95c3e23bb2376fa0ffa1efe49e22752518432e27b5467939a482b497fcd32"}}','{}','bc4c2119dc7ab2422161a6455ef25c296cde17fea522a4c5b9e37d071187ada0');
INSERT INTO "items" VALUES(1,'third-cat',2,'m',NULL,'97116f7227085b3696e632a798f68012b131e0cc723164d391b6cf9e50eaa27f','Paint it blue.','','{"input":{"source":"@FOLDER@/cats/input-2.png","digest":"97116f7227085b3696e632a798f68012b131e0cc723164d391b6cf9e50eaa27f"},"edited":{"source":"@FOLDER@/cats/edited-2.png","digest":"8beeda8fa1b33e836a5c3c792d717d1ddc2168c54aed5a5c38109055cd7e8149"}}','{}','f89789d490e7b17187d656821c2579deecbe1c0d86a39dffc25153ea7fb70c8d');
INSERT INTO "items" VALUES(2,'line-1',0,'m',NULL,'48b9ebd6086dc3d08df4c2a59ff84fc8747502cf8c3e3d2aa06a1788b5275cb2','Paint it blue.','','{"input":{"source":"@FOLDER@/dogs/input-0.png","digest":"48b9ebd6086dc3d08df4c2a59ff84fc8747502cf8c3e3d2aa06a1788b5275cb2"},"edited":{"source":"@FOLDER@/dogs/edited-0.png","digest":"96143a29ed99f8b40e07a94dc3c065930ce505a7d2e25f8c9d1b1b581a61939a"}}','{}','0a90d995c3b1aa02caef272525ce6fb33b45e0262592fdd3c310fe25dcf02af0');
INSERT INTO "items" VALUES(2,'line-2',1,'m',NULL,'a8c9292155f77ea29f0efc7c4fa92d8db9cef60faca99ae76e4ff48b24bf8dcb','Paint it blue.','','{"input":{"source":"@FOLDER@/dogs/input-1.png","digest":"a8c9292155f77ea29f0efc7c4fa92d8db9cef60faca99ae76e4ff48b24bf8dcb"},"edited":{"source":"@FOLDER@/dogs/edited-1.png","digest":"51b2687bbb849d39d1a98c49088601abd96119c001ee043992834a10803bbc3d"}}','{}','920834e0cf313101baafc4923a4f49bfccf3a243415d36b342ad01f2574e1bb4');
INSERT INTO "items" VALUES(2,'line-3',2,'m',NULL,'78f1dd338db3018eaf90a5f54e37d1aa1463a09ece16282bb5ef0cb92235198d','Paint it blue.','','{"input":{"source":"@FOLDER@/dogs/input-2.png","digest":"78f1dd338db3018eaf90a5f54e37d1aa1463a09ece16282bb5ef0cb92235198d"},"edited":{"source":"@FOLDER@/dogs/edited-2.png","digest":"e2b801cfc5268d1958b4f511d5bd6e4aeffaba3ea0d6b22f215013f140723c59"}}','{}','1cf963846ec022da16bd2c683b8920d451733303493d875b3d85c07ea909d7c5');
CREATE TABLE judgements (
	"key" TEXT NOT NULL, 
	status TEXT NOT NULL, 
	judge TEXT NOT NULL, 
	rubric TEXT NOT NULL, 
	rubric_hash TEXT NOT NULL, 
	repeat INTEGER NOT NULL, 
	justifications TEXT, 
	abstained TEXT NOT NULL, 
	evidence TEXT NOT NULL, 
	violations TEXT NOT NULL, 
	notes TEXT NOT NULL, 
	reasons TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	usage TEXT NOT NULL, 
	cost DOUBLE, 
	server_model TEXT, 
	schema_mode TEXT, 
	prepared TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY ("key")
);
INSERT INTO "judgements" VALUES('b1a66ffbbc689906be46037c97ef7f584d9ee1ca422937458ff068a975216f39','ok','openai/stub','fidelity','56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d',0,'{"alignment":"Along the left edge and behind the main subject, alignment shows in the edited picture as this score says.","completeness":"Along the left edge and behind the main subject, completeness shows in the edited picture as this score says.","plausibility":"Along the left edge and behind the main subject, plausibility shows in the edited picture as this score says."}','{}','{}','[]','[]','[]',1,'{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}',NULL,'stub-2026-01-01','requested','{"input":"as-is","edited":"as-is"}',1.79485200800429987909e+09);
INSERT INTO "judgements" VALUES('3ae6c2b7a062fa4bd989c0534c847ffb9434704034a9063f4d23561f54e90888','ok','openai/stub','fidelity','56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d',0,'{"alignment":"Along the left edge and behind the main subject, alignment shows in the edited picture as this score says.","completeness":"Along the left edge and behind the main subject, completeness shows in the edited picture as this score says.","plausibility":"Along the left edge and behind the main subject, plausibility shows in the edited picture as this score says."}','{}','{}','[]','[]','[]',1,'{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}',NULL,'stub-2026-01-01','requested','{"input":"as-is","edited":"as-is"}',1.79485200802694487573e+09);
INSERT INTO "judgements" VALUES('4c8d27a5efa55d9da4fab09aa1af918a8cf5d8089e3b71af6665f458baf3290e','ok','openai/stub','fidelity','56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d',0,'{"alignment":"Along the left edge and behind the main subject, alignment shows in the edited picture as this score says.","completeness":"Along the left edge and behind the main subject, completeness shows in the edited picture as this score says.","plausibility":"Along the left edge and behind the main subject, plausibility shows in the edited picture as this score says."}','{}','{}','[]','[]','[]',1,'{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}',NULL,'stub-2026-01-01','requested','{"input":"as-is","edited":"as-is"}',1.79485200802722120287e+09);
INSERT INTO "judgements" VALUES('9925d20bb89e404516aff360d62d20330d523b234c27875cd183fec12e8afd88','ok','openai/stub','fidelity','56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d',0,'{"alignment":"Along the left edge and behind the main subject, alignment shows in the edited picture as this score says.","completeness":"Along the left edge and behind the main subject, completeness shows in the edited picture as this score says.","plausibility":"Along the left edge and behind the main subject, plausibility shows in the edited picture as this score says."}','{}','{}','[]','[]','[]',1,'{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}',NULL,'stub-2026-01-01','requested','{"input":"as-is","edited":"as-is"}',1.79485200818062829971e+09);
INSERT INTO "judgements" VALUES('30fcacb5c0f04837cc14e7ef046a34d8638ddbee8bdbbc04ea35fd30d9a21ace','ok','openai/stub','fidelity','56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d',0,'{"alignment":"Along the left edge and behind the main subject, alignment shows in the edited picture as this score says.","completeness":"Along the left edge and behind the main subject, completeness shows in the edited picture as this score says.","plausibility":"Along the left edge and behind the main subject, plausibility shows in the edited picture as this score says."}','{}','{}','[]','[]','[]',1,'{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}',NULL,'stub-2026-01-01','requested','{"input":"as-is","edited":"as-is"}',1.79485200841595578195e+09);
INSERT INTO "judgements" VALUES('cae585797947963445172323017f42ce05388adfab8aa16d4fd248f8a494b192','ok','openai/stub','fidelity','56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d',0,'{"alignment":"Along the left edge and behind the main subject, alignment shows in the edited picture as this score says.","completeness":"Along the left edge and behind the main subject, completeness shows in the edited picture as this score says.","plausibility":"Along the left edge and behind the main subject, plausibility shows in the edited picture as this score says."}','{}','{}','[]','[]','[]',1,'{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}',NULL,'stub-2026-01-01','requested','{"input":"as-is","edited":"as-is"}',1.79485200841686534881e+09);
CREATE TABLE meta (
	name TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "meta" VALUES('schema_version','7');
CREATE TABLE ratings (
	content TEXT NOT NULL, 
	rubric TEXT NOT NULL, 
	rater TEXT NOT NULL, 
	factor TEXT NOT NULL, 
	item TEXT NOT NULL, 
	score DOUBLE NOT NULL, 
	created DOUBLE NOT NULL, 
	study_id INTEGER, 
	PRIMARY KEY (content, rubric, rater, factor)
);
INSERT INTO "ratings" VALUES('f89789d490e7b17187d656821c2579deecbe1c0d86a39dffc25153ea7fb70c8d','56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d','eve','alignment','third-cat',4.0,1.79485200858803701402e+09,1);
INSERT INTO "ratings" VALUES('bc4c2119dc7ab2422161a6455ef25c296cde17fea522a4c5b9e37d071187ada0','56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d','eve','alignment','line-2',4.0,1.79485200860300159455e+09,1);
INSERT INTO "ratings" VALUES('f89789d490e7b17187d656821c2579deecbe1c0d86a39dffc25153ea7fb70c8d','','ann','alignment','third-cat',6.0,1.79485200894299125676e+09,NULL);
INSERT INTO "ratings" VALUES('0.1:line-1','','ann','alignment','line-1',3.0,1.79485200894299125676e+09,NULL);
INSERT INTO "ratings" VALUES('0.1:1','','ann','alignment','1',3.0,1.79485200894299125676e+09,NULL);
INSERT INTO "ratings" VALUES('0.1:2','','ann','alignment','2',5.0,1.79485200894299125676e+09,NULL);
INSERT INTO "ratings" VALUES('0.1:nowhere','','ann','alignment','nowhere',2.0,1.79485200894299125676e+09,NULL);
INSERT INTO "ratings" VALUES('f89789d490e7b17187d656821c2579deecbe1c0d86a39dffc25153ea7fb70c8d','','bob','alignment','third-cat',7.0,1.79485200894299125676e+09,NULL);
CREATE TABLE replies (
	id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	mark BIGINT NOT NULL, 
	at DOUBLE NOT NULL, 
	outcome TEXT NOT NULL, 
	finish TEXT NOT NULL, 
	text BLOB NOT NULL, 
	usage TEXT NOT NULL, 
	model TEXT, 
	request_id TEXT, 
	latency DOUBLE, 
	retries INTEGER NOT NULL, 
	reasons TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "replies" VALUES(1,'b1a66ffbbc689906be46037c97ef7f584d9ee1ca422937458ff068a975216f39',-659757475329289519,1.79485200800429987909e+09,'ok','stop',X'01789CB590CB6AC3400C457F45CC3A2D8612DA74D72F31F3B8B615C61A63690821F8DF3BCEA2A4CB9676351A3D8E0EBA399EFD889E937B2787C4F6040484E35B3A76A753485DE70EE48A6416F4838F56D67E85D66CDA266ECE671E6586D8FDA7B1AC68D14B9B3957351E387AE3223BFD231719C92650C660843482BC240A98B83D7B61F62CA4359C11ED405F6CD2A95C945A6D6FDA2D9168E168756D086D5956BAEF26F5577D765BDB1FCBBC641804AADFE45EFF44EE11FF2BBF25FBAA1C38B35DFFE1788FF89FFB6DDB2762E8BC29','{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}','stub-2026-01-01','req_0bc138e3a8899b6cc6131961',7.5755730000537369051e-03,0,'[]');
INSERT INTO "replies" VALUES(2,'3ae6c2b7a062fa4bd989c0534c847ffb9434704034a9063f4d23561f54e90888',-152953354519272602,1.79485200802694487573e+09,'ok','stop',X'01789CB590CD6EC2300C805FC5CA994D1A9431B8F124959BB8AD51EA54B5238450DF7D2907C48E43708AE39FCF9F7C753C6047350777004781ED63FDD3568855B55B7FE166BFF16E052E4964A1BA456F69AA27D21C4DCBC4D561E44E0612BBFDD4A7894AB42D33A7ACC62D7B344EB2D08F314907D613446A0D28740428011AEAB93C4B614016D0DC9CC8DB0AEE6CD03E9D154A6D695A2C29C0C8DEF254105AB2AC70DB0D8A17FD7473D9EFD33046321252FD23F7FD12B947FC537E63C4ACDC7064BBBCE1788FF8FFFBCDF32F3725BB96','{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}','stub-2026-01-01','req_9b16761d70053f6c2ee7952d',3.18020360000446089543e-02,0,'[]');
INSERT INTO "replies" VALUES(3,'4c8d27a5efa55d9da4fab09aa1af918a8cf5d8089e3b71af6665f458baf3290e',6359409523196055617,1.79485200802722120287e+09,'ok','stop',X'01789CAD8E3B0EC2300C40AF626506065A0462E324559A38AD51EA54B52354A1DE9D9401C10862F2FFF9DD0D0DB6C386BC3983414FBA6DEBE3A9AABCAB4FA13AD475301B3089233136C13A4D5333A1E4A8522EEEC646EA7840D667252E4D58B243B9B966510AE4AC52E2957E89893BD01E21625040DF2158F6D0624F25AC83C11283E4F68A4E37F06283F4E9265066EBD26A891E46729AA78290D22581E76F103BCBCE2CE5BF4BC318519151E4436EFF17B977FC4F7E63B459A8A5483A7FF8557FF17BC77FEFB72C0F4F2DBB9F','{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}','stub-2026-01-01','req_6ea5a4a6cf522706fa2d70de',3.20071239999606405035e-02,0,'[]');
INSERT INTO "replies" VALUES(4,'9925d20bb89e404516aff360d62d20330d523b234c27875cd183fec12e8afd88',-3942009234193991386,1.79485200818062829971e+09,'ok','stop',X'01789CAD8ECD0AC2300C805F25F4ACA21B8AF3E6938CAECDB648978E254544F6EE761E448F8AA7FC7FF9EE8606DB614DDE9CC0A0275D57FBEDBEF455E9AAB2381CDBA35981891C88B16EADD338D5134A0A2AF9E26E6CA08E07647D56E2E28439DBE59B4B12A5969C558ABCD0CF217207DA23046C15D07708963D34D8530ECB60B0C420A9B9A0D315BCD8207DBC0AE4D9B2B458A287919CA62923247749E0F91BC4DE6463E6FCDFC5610CA8C828F22157FC45EE1DFF93DF186C126A2890DE3EFCCABFF8BDE3BFF79BE7079962BB44','{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}','stub-2026-01-01','req_b5bc82e84db8d35a76a8a93d',4.38054400001419708132e-03,0,'[]');
INSERT INTO "replies" VALUES(5,'30fcacb5c0f04837cc14e7ef046a34d8638ddbee8bdbbc04ea35fd30d9a21ace',-7294418960161425709,1.79485200841595578195e+09,'ok','stop',X'01789CAD8EC16AC3300C407F45F8DC0D96321A76DB9704C5561215470E914C2925FF3EA587D11E377A10922DE9E9DD02CF3852C7297C41A0C4F6D6604B1E4D7B6C9BE6339EC2014291CC42DD80D1CADAADA4359BFAC62D60E6516612BBBF349695BCFAF09D7355E381231A17D9E9DFB9C8083611641A0C288D0428097A9AD8D3DE989105B4F6678A76805F36E8542E0ADEDB87764B4AB070B4BA3A42FD9715EEB741F1AAEF61F3FBB1CC4B262321D527B9D34BE41EF1FFF25B3256E59E33DBF5C9EFF812BF47FCDFFDB6ED07E140BB69','{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}','stub-2026-01-01','req_28d3e67ff45be3287b8448f1',2.39343407999967894284e-01,0,'[]');
INSERT INTO "replies" VALUES(6,'cae585797947963445172323017f42ce05388adfab8aa16d4fd248f8a494b192',-6345753824020906010,1.79485200841686534881e+09,'ok','stop',X'01789CAD8E4B8EC2300C40AF6265CDA099568098DD9CA47213B7354A9DAA763442A877276581600962E5FFF3BB381EB1A78683FB054781EDCB7F7758D7BBFDAEAA0E3FC7BA751B7049220B351D7A4B733393E6685A2E2E0E23F73292D8AD529F662A59556E4E598D3BF6689C64A5FFC5243DD84010A933A0D013A0046869E012D6C1882CA0B93D91B70DDCD9A043FA5728B37569B5A400137BCB734168E9B2C2ED37289E75EB96F2DFA7718A6424A4FA2477F888DC23FE2DBF2962566E39B29D9FFCF61FF17BC4BFEEB72C57D328BB64','{"input_tokens":2442,"output_tokens":135,"cached_tokens":1221,"reasoning_tokens":null}','stub-2026-01-01','req_2f13460e92539716098f59b4',2.38333716999932221369e-01,0,'[]');
CREATE TABLE rubrics (
	hash TEXT NOT NULL, 
	name TEXT NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY (hash)
);
INSERT INTO "rubrics" VALUES('56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d','fidelity','{"name":"fidelity","images":["input","edited"],"factors":[{"key":"alignment","scale":{"values":[1,2,3,4,5,6,7],"labels":{"1":"Strongly disagree: nothing that the factor asks for was achieved","2":"Disagree: serious faults","3":"Somewhat disagree: faults that are plain to see","4":"Neither agree nor disagree: good and bad in balance, or evidence that can be read both ways","5":"Somewhat agree: small faults and no others","6":"Agree: well executed, any fault is negligible","7":"Strongly agree: perfectly executed, no fault at all"}},"title":"Alignment","definition":"Whether the edit matches what the instruction specifies, so that what was done is what was asked for.","examine":["Take the instruction apart into the changes it requests; \"turn the door blue\", for example, requests one change, the colour blue for the door.","For each of them, see whether the edited image shows it.","Check how accurate it is. Asked for blue, is it blue and not violet? Asked for a horse, is it a horse and not a donkey?","Check the specifics. Where the words are \"a striped canvas deckchair\", a plain steel stool is no match.","Check the target. If the boy''s scarf was to change, it must be his and it must be the scarf, not a neighbour''s scarf and not his coat.","Ask whether the edit meets what the instruction is after, and each particular requirement it states."],"consider":[],"excludes":"Whether every part was carried out (completeness) and whether the result could be real (plausibility). Here only the match between the request and the change counts.","anchors":[{"scores":[6,7],"when":["Every change that was asked for appears just as it was specified.","The right objects and attributes were picked out and altered.","Particulars such as colour, kind of object and attribute agree exactly with the request.","The edit plainly serves what the instruction is after."]},{"scores":[1,2,3],"when":["A requested change came out wrong, say in another colour or as another kind of object.","Something other than the named target was altered in its place.","The edit runs against the instruction or misreads it.","Stated requirements are disregarded or carried out wrongly."]}]},{"key":"completeness","scale":{"values":[1,2,3,4,5,6,7],"labels":{"1":"Strongly disagree: nothing that the factor asks for was achieved","2":"Disagree: serious faults","3":"Somewhat disagree: faults that are plain to see","4":"Neither agree nor disagree: good and bad in balance, or evidence that can be read both ways","5":"Somewhat agree: small faults and no others","6":"Agree: well executed, any fault is negligible","7":"Strongly agree: perfectly executed, no fault at all"}},"title":"Completeness","definition":"Whether the instruction was carried out in full, with no requested change left undone.","examine":["Split the instruction into its separate parts or sub-tasks.","Where it joins several requests, as \"take away the bench and put in a fountain\" does, verify each one.","Where it covers several targets, as \"paint all the shutters white\" does, verify that none was passed over.","Look for work done in part, where some of the request was met and the remainder was not.","Where the wording implies several changes or reaches several elements, as \"make it a rainy evening\" does, check that each of them was dealt with.","Name the omissions, that is, requested changes that were never made."],"consider":[],"excludes":"The accuracy of the changes (alignment) and their realism (plausibility). A part that was done in the wrong shade was still done.","anchors":[{"scores":[6,7],"when":["Each part of the instruction was carried out.","Every target that was specified has undergone its change.","Nothing was left out or stopped halfway.","The edited image accounts for everything that the instruction wanted."]},{"scores":[1,2,3],"when":["Large parts of the instruction went undone.","Several of the changes that were asked for are missing.","No more than a share of the named targets was altered.","Set against the instruction, the edit is evidently unfinished."]}]},{"key":"plausibility","scale":{"values":[1,2,3,4,5,6,7],"labels":{"1":"Strongly disagree: nothing that the factor asks for was achieved","2":"Disagree: serious faults","3":"Somewhat disagree: faults that are plain to see","4":"Neither agree nor disagree: good and bad in balance, or evidence that can be read both ways","5":"Somewhat agree: small faults and no others","6":"Agree: well executed, any fault is negligible","7":"Strongly agree: perfectly executed, no fault at all"}},"title":"Plausibility","definition":"Whether what the edited image shows makes sense in reality, as a thing that could exist or an event that could take place.","examine":["Possibility. Could such a thing exist or happen outside the picture?","Logic. Do the changes contradict the scene or one another, or add up to something impossible?","Physics, biology and common sense. Look for breaches such as a ladder leaning on empty air, smoke that sinks like a stone, or a hand with six fingers.","Context. Does the result suit its scene? Sunbathers on a ski slope may be out of place, or may be explained by what else is shown.","Compatibility. Do objects and their attributes fit what is known of the world? A statue of ice that glows red-hot contradicts its own material.","Anatomy and structure. After the edit, are living beings built as such beings are, and do objects have the parts and joints that they need?"],"consider":["Judge the result and not the request. The instruction may ask for something odd; what counts is whether the picture made from it shows something that could exist.","Tell style from implausibility. A manner of depiction may be deliberate and is no fault; a breach of real-world logic is one."],"excludes":"Whether the instruction was a sensible one, and whether it was followed accurately (alignment) or in full (completeness).","anchors":[{"scores":[6,7],"when":["What the edited image shows could really exist.","It holds no contradiction in logic and nothing physically impossible.","Things, living beings and events agree with what is known of the world.","However unusual or inventive, the result is coherent."]},{"scores":[1,2,3],"when":["The result shows things that plainly cannot be or that contradict each other.","Laws of physics are broken so badly that the scene cannot be believed.","Faults of anatomy or construction make a form that could not exist.","The picture shows an event that could never happen.","Several such faults occur together."]}]}],"answer":{"id_key":"image_id","envelope":"online_factor_results","form":"entries","score_key":"score","reason_key":"justification","texts":[],"words":[15,30],"reason":"","sections":[]},"texts":["instruction"],"description":"Was the instruction carried out accurately and in full, with a plausible result?","role":"You are a specialist in instruction fidelity. Judge impartially, hold every edit to the same standard, and rest each verdict solely on how well the edit carries out the instruction it was given.","task":"Decide how far the edited image is faithful to the instruction. Score each of the factors below.","scope":["The instruction is the measure of fidelity; the input image shows what the edit started from.","Whether the rest of the picture was kept, and how cleanly the edit was made, is not a matter of fidelity."],"allowed":[],"forbidden":[],"ignored":[],"steps":["Read the instruction closely. Settle exactly what it wants changed, listing the changes, their targets and their specifics.","Take the factors one at a time and, for each, go through the edited image region by region with the instruction in hand.","Hold the edited image against the input image to see what changed and what did not.","Gather concrete, visible evidence that bears on the definition of each factor.","Settle on a score for each factor, an integer from 1 to 7 on the scale above, for how far you agree that the edited image satisfies it.","Back each score with a short justification of 15 to 30 words that says what can be seen."],"constraints":["Reply with a single JSON object that holds every factor, and with nothing else.","Every score is an integer from 1 to 7.","Each justification on fidelity sets what was requested against the particular thing that is shown. \"A yellow kite was asked for and the kite above the pier is orange\" is evidence; \"the wrong colour\" is not.","A justification neither repeats the definition of its factor nor walks through your reasoning.","Be exact, and say which points of the instruction were followed and which were not.","Stay impartial. On fidelity, weigh what can be seen against what was requested, and nothing besides.","Write factually and briefly, about what the images show.","Score every factor on its own evidence; the verdict on one must not colour another.","For alignment, weigh how accurate the changes are that were made.","For completeness, weigh thoroughness, that is, whether all of it was done.","For plausibility, weigh whether the result could exist in reality."],"consistency":null,"example":"{\n  \"image_id\": \"example\",\n  \"online_factor_results\": {\n    \"alignment\": {\n      \"justification\": \"A wooden rowing boat was requested at the jetty and the boat shown there is wooden, with oars; the requested red sail is maroon.\",\n      \"score\": 5\n    },\n    \"completeness\": {\n      \"justification\": \"Boat and sail were both added as requested, but the two lamp posts on the quay, also to be removed, are still standing.\",\n      \"score\": 3\n    },\n    \"plausibility\": {\n      \"justification\": \"The boat floats at a natural waterline beside the jetty, its mast is stepped and rigged, and nothing in the harbour contradicts another part.\",\n      \"score\": 7\n    }\n  }\n}\n","template":null,"members":[]}');
CREATE TABLE runs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	spec_hash TEXT NOT NULL, 
	state TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	updated DOUBLE NOT NULL, 
	summary TEXT, 
	version TEXT NOT NULL, imported_from TEXT, 
	UNIQUE (name)
);
INSERT INTO "runs" VALUES(1,'cats','{"manifest":"@FOLDER@/cats/edits.jsonl","rubrics":{"fidelity":"56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d"},"asked_for":["fidelity"],"judges":["openai/stub"],"repeats":1,"layout":"images-first","fuse":false,"limit":null,"allow_outside":false,"allow_urls":false,"options":{"parameters":{"temperature":null,"seed":null,"max_tokens":null,"reasoning_effort":null,"extra":{}},"base_url":null,"schema":true,"strict":false,"reasks":2}}','23eb815b9d0fbb680ffd16b055d3bd5dd69956f79c8d414e154b83745116699c','finished',1.79485200795115447044e+09,1.79485200804327607159e+09,'{"statuses":{"ok":3},"total":3,"failed":0,"factors":[{"judge":"openai/stub","model":"m","rubric":"fidelity","factor":"alignment","mean":4.333333333333333,"ok":3,"n":3},{"judge":"openai/stub","model":"m","rubric":"fidelity","factor":"completeness","mean":5.0,"ok":3,"n":3},{"judge":"openai/stub","model":"m","rubric":"fidelity","factor":"plausibility","mean":3.6666666666666665,"ok":3,"n":3}],"reasons":[]}','0.1.0',NULL);
INSERT INTO "runs" VALUES(2,'dogs','{"manifest":"@FOLDER@/dogs/edits.jsonl","rubrics":{"fidelity":"56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d"},"asked_for":["fidelity"],"judges":["openai/stub"],"repeats":1,"layout":"images-first","fuse":false,"limit":null,"allow_outside":false,"allow_urls":false,"options":{"parameters":{"temperature":null,"seed":null,"max_tokens":null,"reasoning_effort":null,"extra":{}},"base_url":null,"schema":true,"strict":false,"reasks":2}}','78af1aa71b90cd62c943e47aefcefdb881ed162bacf314c0cc9d61ba4e4060db','finished',1.79485200810610270503e+09,1.79485200843082952498e+09,'{"statuses":{"ok":3},"total":3,"failed":0,"factors":[{"judge":"openai/stub","model":"m","rubric":"fidelity","factor":"alignment","mean":1.3333333333333333,"ok":3,"n":3},{"judge":"openai/stub","model":"m","rubric":"fidelity","factor":"completeness","mean":5.333333333333333,"ok":3,"n":3},{"judge":"openai/stub","model":"m","rubric":"fidelity","factor":"plausibility","mean":4.0,"ok":3,"n":3}],"reasons":[]}','0.1.0',NULL);
CREATE TABLE scores (
	"key" TEXT NOT NULL, 
	factor TEXT NOT NULL, 
	position SMALLINT NOT NULL, 
	score DOUBLE NOT NULL, 
	expected DOUBLE, 
	spread DOUBLE, 
	choice TEXT, 
	status TEXT DEFAULT 'ok' NOT NULL, 
	PRIMARY KEY ("key", factor), 
	CONSTRAINT a_score_exists_only_in_ok CHECK (status = 'ok'), 
	FOREIGN KEY("key", status) REFERENCES judgements ("key", status) ON DELETE CASCADE
)
 WITHOUT ROWID

;
INSERT INTO "scores" VALUES('30fcacb5c0f04837cc14e7ef046a34d8638ddbee8bdbbc04ea35fd30d9a21ace','alignment',0,1.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('30fcacb5c0f04837cc14e7ef046a34d8638ddbee8bdbbc04ea35fd30d9a21ace','completeness',1,7.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('30fcacb5c0f04837cc14e7ef046a34d8638ddbee8bdbbc04ea35fd30d9a21ace','plausibility',2,3.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('3ae6c2b7a062fa4bd989c0534c847ffb9434704034a9063f4d23561f54e90888','alignment',0,5.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('3ae6c2b7a062fa4bd989c0534c847ffb9434704034a9063f4d23561f54e90888','completeness',1,6.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('3ae6c2b7a062fa4bd989c0534c847ffb9434704034a9063f4d23561f54e90888','plausibility',2,5.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('4c8d27a5efa55d9da4fab09aa1af918a8cf5d8089e3b71af6665f458baf3290e','alignment',0,5.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('4c8d27a5efa55d9da4fab09aa1af918a8cf5d8089e3b71af6665f458baf3290e','completeness',1,2.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('4c8d27a5efa55d9da4fab09aa1af918a8cf5d8089e3b71af6665f458baf3290e','plausibility',2,3.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('9925d20bb89e404516aff360d62d20330d523b234c27875cd183fec12e8afd88','alignment',0,1.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('9925d20bb89e404516aff360d62d20330d523b234c27875cd183fec12e8afd88','completeness',1,2.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('9925d20bb89e404516aff360d62d20330d523b234c27875cd183fec12e8afd88','plausibility',2,3.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('b1a66ffbbc689906be46037c97ef7f584d9ee1ca422937458ff068a975216f39','alignment',0,3.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('b1a66ffbbc689906be46037c97ef7f584d9ee1ca422937458ff068a975216f39','completeness',1,7.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('b1a66ffbbc689906be46037c97ef7f584d9ee1ca422937458ff068a975216f39','plausibility',2,3.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('cae585797947963445172323017f42ce05388adfab8aa16d4fd248f8a494b192','alignment',0,2.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('cae585797947963445172323017f42ce05388adfab8aa16d4fd248f8a494b192','completeness',1,7.0,NULL,NULL,NULL,'ok');
INSERT INTO "scores" VALUES('cae585797947963445172323017f42ce05388adfab8aa16d4fd248f8a494b192','plausibility',2,6.0,NULL,NULL,NULL,'ok');
CREATE TABLE studies (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	run_id INTEGER NOT NULL, 
	rubrics TEXT NOT NULL, 
	overlap INTEGER NOT NULL, 
	quota INTEGER NOT NULL, 
	controls INTEGER NOT NULL, 
	seed BIGINT NOT NULL, 
	created DOUBLE NOT NULL, 
	UNIQUE (name)
);
INSERT INTO "studies" VALUES(1,'study of cats',1,'["56bdd26c2fa4bc2be8414cb59d1242d9c7895ed61503d8aac08942712c6c614d"]',2,2,0,149945547,1.79485200853672218325e+09);
CREATE TABLE tasks (
	run_id INTEGER NOT NULL, 
	item TEXT NOT NULL, 
	rubric TEXT NOT NULL, 
	judge TEXT NOT NULL, 
	repeat INTEGER NOT NULL, 
	position BIGINT NOT NULL, 
	"key" TEXT NOT NULL, 
	PRIMARY KEY (run_id, item, rubric, judge, repeat), 
	FOREIGN KEY(run_id) REFERENCES runs (id)
);
INSERT INTO "tasks" VALUES(1,'line-1','fidelity','openai/stub',0,0,'b1a66ffbbc689906be46037c97ef7f584d9ee1ca422937458ff068a975216f39');
INSERT INTO "tasks" VALUES(1,'line-2','fidelity','openai/stub',0,1,'3ae6c2b7a062fa4bd989c0534c847ffb9434704034a9063f4d23561f54e90888');
INSERT INTO "tasks" VALUES(1,'third-cat','fidelity','openai/stub',0,2,'4c8d27a5efa55d9da4fab09aa1af918a8cf5d8089e3b71af6665f458baf3290e');
INSERT INTO "tasks" VALUES(2,'line-1','fidelity','openai/stub',0,0,'9925d20bb89e404516aff360d62d20330d523b234c27875cd183fec12e8afd88');
INSERT INTO "tasks" VALUES(2,'line-2','fidelity','openai/stub',0,1,'30fcacb5c0f04837cc14e7ef046a34d8638ddbee8bdbbc04ea35fd30d9a21ace');
INSERT INTO "tasks" VALUES(2,'line-3','fidelity','openai/stub',0,2,'cae585797947963445172323017f42ce05388adfab8aa16d4fd248f8a494b192');
CREATE UNIQUE INDEX replies_by_key ON replies ("key", mark);
CREATE INDEX items_by_position ON items (run_id, position);
CREATE INDEX tasks_by_position ON tasks (run_id, position);
CREATE INDEX tasks_by_key ON tasks ("key");
CREATE INDEX batch_lines_by_key ON batch_lines ("key");
CREATE UNIQUE INDEX judgements_by_status ON judgements ("key", status);
CREATE INDEX scores_by_factor ON scores (factor, score, "key");
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('runs',2);
INSERT INTO "sqlite_sequence" VALUES('studies',1);
COMMIT;
